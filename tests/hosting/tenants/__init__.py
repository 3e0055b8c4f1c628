"""Tests of ``liqod.hosting.tenants``."""
