"""Generated variations of what a tenant may not have, and an oracle that goes by what the API server shows afterwards.

The generators know the ways to ask, the oracle knows what must not come of it; neither reads the contract of tenants.
"""
