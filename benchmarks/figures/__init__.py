"""Figures: how they are read, kept, compared, and held against goals."""
