"""What a tenant has at this lender: offer, namespaces, service account, rights and admission policies."""
