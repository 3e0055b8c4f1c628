"""Commands about the network between clusters."""
