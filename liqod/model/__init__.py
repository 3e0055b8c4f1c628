"""The nouns of the daemon: frozen values that import nothing of ours."""
