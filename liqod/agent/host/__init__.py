"""What the daemon asks of its host: service manager, watchdog, clock, address, identity for the lease."""
