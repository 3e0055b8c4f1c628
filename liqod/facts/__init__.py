"""Finds out about this cluster what others need to know: networks, addresses, software."""
