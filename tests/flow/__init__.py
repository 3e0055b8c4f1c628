"""Tests of liqod.flow."""
