"""The Node object of a virtual kubelet: its content, lease and conditions, and the tolerations of its pods."""
