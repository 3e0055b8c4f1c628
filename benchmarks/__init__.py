"""Benchmarks: what liqod costs and how fast it is, against the same work done locally in the same run."""
