"""Commands that show what is, and why."""
