"""Commands about peers: trust, offers, and what they may do here."""
