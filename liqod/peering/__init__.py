"""Peering: sessions with other clusters, and the offers that are sent and received in them."""
