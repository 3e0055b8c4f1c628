"""Tests of liqod.acceptance."""
