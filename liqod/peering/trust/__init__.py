"""Whom this cluster trusts: judging keys, pairing by token, the exchange of keys."""
