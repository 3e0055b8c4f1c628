"""Tests of liqod.kubelet.tokens."""
