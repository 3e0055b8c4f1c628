"""Kubernetes' own end-to-end tests, run against a cluster whose only schedulable node is a virtual one."""
