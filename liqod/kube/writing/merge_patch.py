"""Computes and applies JSON merge patches (RFC 7396)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from liqod.model.objects.meta import to_dict


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the smallest patch that turns ``before`` into ``after``; empty when they are equal.

    Lists are replaced as a whole. None on either side is an absent field: in a merge patch null means "remove".
    """
    patch: dict[str, Any] = {}
    for name, value in after.items():
        if value is None:
            continue
        old = before.get(name)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if inner := merge_patch(old, value):
                patch[name] = inner
        elif old is None or value != old or isinstance(value, bool) != isinstance(old, bool):
            patch[name] = value
    patch.update({name: None for name, old in before.items() if old is not None and after.get(name) is None})
    return patch


def apply_merge_patch(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with a patch applied (RFC 7396, section 2); ``target`` is not changed."""
    result = dict(target)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            old = result.get(name)
            result[name] = apply_merge_patch(old if isinstance(old, Mapping) else {}, value)
        else:
            result[name] = value
    return result


def compose(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return the patch that does what two patches do one after the other: like applying one, but nulls stay."""
    result = dict(first)
    for name, value in second.items():
        if isinstance(value, Mapping):
            old = result.get(name)
            value = compose(old if isinstance(old, Mapping) else {}, value)
        result[name] = value
    return result


def all_fields(view: msgspec.Struct) -> dict[str, Any]:
    """Return a view with all its fields, null for those at their defaults, as a merge patch needs them."""
    fields = {field.encode_name: None for field in msgspec.structs.fields(view)}
    return {**fields, **to_dict(view)}
