"""Tests of the tokens that offloaded pods mount."""
