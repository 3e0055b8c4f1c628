"""The quota of tenants: resource requests of pods, the ledger, and the ShadowPods that wait for capacity."""
