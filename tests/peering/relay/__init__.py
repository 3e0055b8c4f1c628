"""Tests of ``liqod.peering.relay``."""
