"""Tests of what the parts of a virtual kubelet share."""
