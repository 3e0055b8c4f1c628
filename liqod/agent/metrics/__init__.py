"""Which numbers a daemon shows, and where each is read."""
