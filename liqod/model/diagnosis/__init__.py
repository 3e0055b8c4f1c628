"""What is wrong with a cluster's peerings, by its records: one answer for every command. Pure."""
