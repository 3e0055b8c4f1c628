"""The exchanges between two peers besides offers: credentials, namespaces, network parameters."""
