"""Packet rules: the nftables tables of gateways and of other nodes, and conntrack."""
