"""What every listening port and every connection has: admission, handshakes, addresses."""
