"""Tests of ``liqod.cli.network``."""
