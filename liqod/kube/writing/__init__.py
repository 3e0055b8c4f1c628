"""How objects are written: created or updated, statuses, own writes read back, refusals."""
