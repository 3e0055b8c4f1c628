"""Tests of ``liqod.fabric.control``."""
