"""Commands about offloaded namespaces, their objects, and virtual nodes."""
