"""Offloading of pods: from the home pod to the ShadowPod, and the status back."""
