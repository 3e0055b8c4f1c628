"""Tests of liqod.peering."""
