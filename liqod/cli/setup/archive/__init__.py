"""``gather``: the archive for a problem report, by allow lists and without secrets."""
