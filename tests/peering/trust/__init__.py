"""Tests of ``liqod.peering.trust``."""
