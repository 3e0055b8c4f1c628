"""Tests of liqod.discovery."""
