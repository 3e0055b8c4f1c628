"""Tests against real Kubernetes clusters, made by :mod:`tests.testbed`."""
