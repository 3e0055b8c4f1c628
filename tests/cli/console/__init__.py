"""Tests of ``liqod.cli.console``."""
