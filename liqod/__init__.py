"""liqod: peer-to-peer discovery, peering and pod offloading between Kubernetes clusters."""
