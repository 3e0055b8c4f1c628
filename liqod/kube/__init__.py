"""The Kubernetes API: client, list and watch, caches."""
