"""One pure function for each reflected kind: from the object at home to the object at the lender."""
