"""An in-memory Kubernetes cluster: API server, scheduler, nodes; test double and demo."""
