"""The HTTPS API of virtual nodes: what the home cluster's API server asks kubelets for."""
