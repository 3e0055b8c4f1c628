"""Tests of ``liqod.kube.connection``."""
