"""Offloading of home namespaces: selection, names at the lender, and the status for users."""
