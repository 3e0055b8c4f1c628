"""ShadowPods: admission, the pods created from them, and their status."""
