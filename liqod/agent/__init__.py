"""The composition root: configuration in, service tree out."""
