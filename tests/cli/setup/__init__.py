"""Tests of ``liqod.cli.setup``."""
