"""Service account tokens of offloaded pods: requested at home, stored in a Secret at the lender."""
