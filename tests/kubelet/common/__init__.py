"""Tests of liqod.kubelet.common."""
