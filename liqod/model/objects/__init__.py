"""What every Kubernetes object has, and how Kubernetes reads it: metadata, quantities, selectors."""
