"""Tests of the Node object, its lease, conditions and the tolerations of its pods."""
