"""Tests of ``liqod.hosting.home``."""
