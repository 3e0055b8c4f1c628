"""Caches that follow the API server: list and watch, informers, and their stores."""
