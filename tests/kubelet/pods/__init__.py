"""Tests of liqod.kubelet.pods."""
