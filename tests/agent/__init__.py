"""Tests of liqod.agent."""
