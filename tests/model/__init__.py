"""Tests of liqod.model."""
