"""Tests of ``liqod.kube.cache``."""
