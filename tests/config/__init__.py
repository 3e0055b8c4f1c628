"""Tests of liqod.config."""
