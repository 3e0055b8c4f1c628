"""Reflection of what offloaded pods need: the kinds in ``kinds.KINDS``, home's NetworkPolicies; events come back."""
