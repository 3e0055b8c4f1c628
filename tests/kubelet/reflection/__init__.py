"""Tests of liqod.kubelet.reflection."""
