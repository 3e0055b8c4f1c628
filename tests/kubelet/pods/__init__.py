"""Tests of offloaded pods: decisions, forging, status."""
