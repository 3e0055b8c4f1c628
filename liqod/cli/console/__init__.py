"""What all commands share: options, the session with the API server, output, errors."""
