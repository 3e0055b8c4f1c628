"""A real Prometheus at each of three real clusters: it scrapes, evaluates our rules, and alerts while things break."""
