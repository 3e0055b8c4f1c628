"""Streams to home's API server."""
