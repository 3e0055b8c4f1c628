"""Access to one lender's API server: credential, health, choice of the endpoint, and failover."""
