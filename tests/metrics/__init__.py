"""Tests of liqod.metrics."""
