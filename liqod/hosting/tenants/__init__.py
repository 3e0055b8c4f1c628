"""Tenants of this lender: offers, namespaces, service accounts, rights and admission policies."""
