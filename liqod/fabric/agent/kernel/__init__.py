"""The host's kernel: its desired and observed state, and the commands that turn the second into the first."""
