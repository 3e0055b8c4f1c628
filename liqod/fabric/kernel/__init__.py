"""The kernel's side of the network: what is wanted and seen there, and the commands between the two."""
