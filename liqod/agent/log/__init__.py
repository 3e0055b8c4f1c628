"""What becomes of the daemon's log: which lines are written, in which form, and how many of one cause."""
