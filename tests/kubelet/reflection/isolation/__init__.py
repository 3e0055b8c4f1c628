"""NetworkPolicies of home on their way to a lender."""
