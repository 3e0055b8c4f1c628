"""Tests of the access to a lender's API server."""
