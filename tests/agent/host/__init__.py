"""Tests of ``liqod.agent.host``."""
