"""Tests that make network namespaces of their own: they need root."""
