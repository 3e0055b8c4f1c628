"""What two peers exchange besides offers: credentials, namespaces, networks."""
