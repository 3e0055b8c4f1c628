"""One suite of cases about Kubernetes' API, run on the sandbox and on the real API server."""
