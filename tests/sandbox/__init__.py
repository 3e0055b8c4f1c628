"""Tests of liqod.sandbox."""
