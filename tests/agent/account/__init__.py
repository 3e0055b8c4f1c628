"""Tests of ``liqod.agent.account``."""
