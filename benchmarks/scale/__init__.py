"""What grows with the number of pods, peers, objects and clusters, and how fast."""
