"""Whether an advertisement is accepted, and why."""
