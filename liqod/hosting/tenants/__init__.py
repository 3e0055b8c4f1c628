"""What a tenant has at this lender: namespaces, service account, rights and admission policies."""
