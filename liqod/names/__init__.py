"""Names of home for offloaded pods: their questions are translated, and asked of this cluster's own DNS."""
