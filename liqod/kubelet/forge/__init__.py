"""Pure translation of objects between the home cluster and the lender."""
