"""Tests of liqod.kubelet.node.controller."""
