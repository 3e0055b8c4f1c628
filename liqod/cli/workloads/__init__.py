"""Commands about namespaces and nodes: offload, unoffload, cordon, drain."""
