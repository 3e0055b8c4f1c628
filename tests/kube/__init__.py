"""Tests of liqod.kube."""
