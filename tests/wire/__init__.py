"""Tests of liqod.wire."""
