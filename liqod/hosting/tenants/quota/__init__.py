"""The ResourceQuotas of granted namespaces, and the sum of a tenant: all of them together allow no more than that."""
