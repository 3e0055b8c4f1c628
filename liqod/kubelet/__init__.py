"""Virtual nodes and the pods offloaded through them."""
