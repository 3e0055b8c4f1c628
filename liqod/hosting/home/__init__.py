"""What of home the pods of tenants reach here: whether the way there is lost, and its API server without a tunnel."""
