"""Tests of liqod.webhook."""
