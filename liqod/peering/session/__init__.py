"""Sessions with peers: dialling, listening, the protocol's connection, and which of two stays."""
