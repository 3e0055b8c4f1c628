"""Commands that show: status, discover, explain."""
