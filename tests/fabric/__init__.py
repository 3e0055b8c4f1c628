"""Tests of liqod.fabric."""
