"""Authentication and authorization of requests: certificates, tokens, RBAC."""
