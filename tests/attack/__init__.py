"""Attacks: the tests of docs/attacks.md together, and floods and fills of real daemons, with a verdict on each."""
