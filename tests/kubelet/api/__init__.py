"""Tests of liqod.kubelet.api."""
