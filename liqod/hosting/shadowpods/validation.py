"""Checks the types of fields that a borrower wrote."""

from __future__ import annotations

from typing import Any


def mapping_in(value: Any, where: str) -> dict[str, Any]:
    """Return a mapping, an empty one for null; raises ValueError with the field for anything else."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{where} is not a mapping")
    return value


def items_in(value: Any, where: str) -> list[dict[str, Any]]:
    """Return a list of mappings, an empty one for null; raises ValueError with the field for anything else."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ValueError(f"{where} is not a list of mappings")
    return value
