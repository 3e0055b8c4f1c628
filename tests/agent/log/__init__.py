"""Tests of liqod.agent.log."""
