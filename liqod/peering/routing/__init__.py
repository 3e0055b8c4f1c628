"""Routing of session events and record changes to the controllers of peering."""
