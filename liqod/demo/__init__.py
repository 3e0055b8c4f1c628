"""The demonstration: two simulated clusters with real daemons in one process."""
