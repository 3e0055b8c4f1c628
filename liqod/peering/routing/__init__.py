"""Which part of peering handles an event of a session or a change of a record."""
