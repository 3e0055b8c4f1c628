"""Reflection of what offloaded pods need: services, configuration, ingresses, claims, events."""
