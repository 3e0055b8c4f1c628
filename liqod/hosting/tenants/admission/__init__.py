"""The rules of admission policies about tenants, by what they are about: expressions of CEL. Pure."""
