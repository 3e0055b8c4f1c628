"""Home's NetworkPolicies at a lender."""
