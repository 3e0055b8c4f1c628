"""``up`` and ``down``: everything that a newcomer needs on a host, in one command, and its inverse."""
