"""A fake Kubernetes API server with controllers, scheduler and nodes, in one Python process."""
