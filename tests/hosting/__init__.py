"""Tests of liqod.hosting."""
