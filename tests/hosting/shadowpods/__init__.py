"""Tests of ``liqod.hosting.shadowpods``."""
