"""Reflection: what offloaded pods need besides themselves (services, configuration, ingresses), kept at the lender."""
