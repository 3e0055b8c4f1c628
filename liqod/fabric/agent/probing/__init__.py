"""Probes of the network to a peer: of the tunnel, and of pods behind it."""
