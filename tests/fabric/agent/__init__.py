"""Tests of ``liqod.fabric.agent``."""
