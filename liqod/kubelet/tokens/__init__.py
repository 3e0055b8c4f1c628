"""Service account tokens of offloaded pods: minted at home, kept in a Secret at the lender."""
