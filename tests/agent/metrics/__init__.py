"""Tests of ``liqod.agent.metrics``."""
