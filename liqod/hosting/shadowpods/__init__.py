"""ShadowPods: checked, made into pods, and kept running."""
