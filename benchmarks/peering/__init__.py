"""One hub with many peers."""
