"""Tests of the installation on a host and of the packages."""
