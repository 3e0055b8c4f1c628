"""Shared by all commands: options, the session with the API server, output, errors."""
