"""The kinds that are served, and the schemas, defaults and checks of their objects."""
