"""Hours of churn and trouble on two real clusters, and whether anything grows."""
