"""Sessions with peers, offers out, offers in."""
