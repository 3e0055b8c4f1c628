"""The lender's side: tenants, their rights, and the pods they run here."""
