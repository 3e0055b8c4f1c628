"""What tenants use of their offers: requests of pods, the ledger, and the ShadowPods that wait for capacity."""
