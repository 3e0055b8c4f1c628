"""Tests of names of home for offloaded pods."""
