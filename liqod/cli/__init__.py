"""liqodctl."""
