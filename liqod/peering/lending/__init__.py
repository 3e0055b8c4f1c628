"""The lender's side: free capacity, the offer composed from it, and its advertisement to peers."""
