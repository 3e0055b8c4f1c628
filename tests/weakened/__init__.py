"""Each admission policy and the compiler of NetworkPolicies with something taken away: each copy lets something by."""
