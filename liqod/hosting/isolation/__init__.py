"""Home's NetworkPolicies as they are kept here: policies in tenants' namespaces, and the label of isolated pods."""
