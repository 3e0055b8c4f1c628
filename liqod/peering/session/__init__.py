"""Sessions with peers: dialling, listening, the protocol of a connection, duplicate sessions, the peer's life cycle."""
