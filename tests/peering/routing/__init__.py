"""Tests of ``liqod.peering.routing``."""
