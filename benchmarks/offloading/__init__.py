"""What running pods in another cluster costs and how long it takes, on real control planes."""
