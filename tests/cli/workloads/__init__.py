"""Tests of ``liqod.cli.workloads``."""
