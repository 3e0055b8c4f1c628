"""Tests of the return of offloaded pods."""
