"""Tests of liqod.kubelet.namespaces."""
