"""Sends the NetworkPolicies of offloaded namespaces to a lender, as a record in the namespaces there."""
