"""Tests of liqod.cli."""
