"""Tests of the Node object, its lease, conditions and the eviction of its pods."""
