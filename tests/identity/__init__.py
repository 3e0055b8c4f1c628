"""Tests of liqod.identity."""
