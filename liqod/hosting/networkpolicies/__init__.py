"""Home's NetworkPolicies as policies of a tenant's namespace here: home's verdict and this cluster's bounds. Pure.

``hosting.isolation`` writes them.
"""
