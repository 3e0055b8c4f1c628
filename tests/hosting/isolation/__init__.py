"""Home's NetworkPolicies as they are kept at a lender."""
