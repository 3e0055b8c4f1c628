"""The installation on a host: configuration, user, units, polkit rule and completions."""
