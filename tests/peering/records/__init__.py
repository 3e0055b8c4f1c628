"""Tests of ``liqod.peering.records``."""
