"""What two clusters agree on before packets flow: networks, exported addresses, keys."""
