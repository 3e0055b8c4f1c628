"""Tests of liqod.http1."""
