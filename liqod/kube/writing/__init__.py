"""Writes objects: create or update, conditional patches, statuses; a cache of own writes, and what refusals mean."""
