"""The peer protocol liqod/1, without I/O."""
