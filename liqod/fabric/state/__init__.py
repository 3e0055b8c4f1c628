"""What control and the network agent share: the network that is wanted, and the report of what there is. Pure."""
