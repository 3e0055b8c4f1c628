"""Tests of liqod.kubelet.node."""
