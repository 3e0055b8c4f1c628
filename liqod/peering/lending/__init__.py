"""What this cluster lends: free capacity, the offer made of it, and its advertisement to peers."""
