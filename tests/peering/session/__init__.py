"""Tests of ``liqod.peering.session``."""
