"""Tests of the HTTPS API of virtual nodes."""
