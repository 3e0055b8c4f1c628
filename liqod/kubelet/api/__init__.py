"""The HTTPS API of virtual nodes, which the home API server calls as it calls kubelets."""
