"""Tests of ``liqod.cli.peering``."""
