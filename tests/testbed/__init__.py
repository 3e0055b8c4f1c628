"""Real Kubernetes clusters on one Linux machine, each in namespaces of its own, for the tests of liqod."""
