"""In-place updates of running pods from changed ShadowPods: forges the patches and applies them."""
