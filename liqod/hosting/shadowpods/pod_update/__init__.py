"""Changes of a ShadowPod that its running pod can take in place: the patches, and how they are applied."""
