"""Tests of ``liqod.peering.exchange``."""
