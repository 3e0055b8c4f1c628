"""Admission: the toleration that lets pods onto virtual nodes."""
