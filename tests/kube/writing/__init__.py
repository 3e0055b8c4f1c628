"""Tests of ``liqod.kube.writing``."""
