"""Tests of ``liqod.cli.status``."""
