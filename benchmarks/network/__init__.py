"""What goes between clusters: packets of the fabric, requests over the relay, names of home."""
