"""Tests of how namespaces are mapped and what users see of it."""
