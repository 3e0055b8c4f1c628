"""Tests of ``liqod.peering.borrowing``."""
