"""The Node object of a virtual kubelet: its content, its lease, its conditions, and the eviction of its pods."""
