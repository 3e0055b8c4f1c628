"""Tests of the cluster facts."""
