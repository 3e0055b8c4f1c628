"""Tests of ``liqod.cli.web``."""
