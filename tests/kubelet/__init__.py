"""Tests of liqod.kubelet."""
