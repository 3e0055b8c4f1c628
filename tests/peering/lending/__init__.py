"""Tests of ``liqod.peering.lending``."""
