"""Values and views that all parts of a virtual kubelet share."""
