"""Simulated nodes, and the pods that they pretend to run."""
