"""The daemon's own account in its cluster: rights, admission policies, names."""
