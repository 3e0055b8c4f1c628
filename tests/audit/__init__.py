"""Tests of liqod.audit."""
