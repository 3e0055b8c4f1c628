"""Writes objects: create or update, status patches, a cache of own writes, and the policy for refusals."""
