"""What one daemon takes by itself: its installation, its messages, its handshakes."""
