"""Tests of liqod.kubelet.namespaces.controller."""
