"""Programs that people run, as offloaded pods: databases, an ingress controller, Prometheus, clients of Kubernetes."""
