"""Describes the allowed values of a setting, for error messages.

The words come from the schema itself (a ``Meta`` description, bounds, the alternatives of a ``Literal``), so that the
complaint and the check cannot disagree.
"""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

_PLAIN: dict[object, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text in quotes",
}


def in_words(kind: Any) -> str:
    """Return what values of a type are allowed, as the end of the sentence "must be ..."."""
    origin = get_origin(kind)
    if origin is Annotated:
        base, *marks = get_args(kind)
        meta = next((mark for mark in marks if isinstance(mark, msgspec.Meta)), None)
        return _of_meta(base, meta) if meta is not None else in_words(base)
    if origin is Literal:
        return f"one of {_choices(kind)}"
    if origin in (Union, types.UnionType):
        return " or ".join(in_words(part) for part in get_args(kind) if part is not type(None))
    if origin is list:
        return f"a list in brackets, each entry {in_words(get_args(kind)[0])}"
    if origin is dict:
        key, value = get_args(kind)
        keys = f" with the keys {_choices(key)}" if get_origin(key) is Literal else ""
        return f"a table{keys}, each value {in_words(value)}"
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        names = ", ".join(field.encode_name for field in msgspec.structs.fields(kind))
        return f"a table with the keys {names}"
    return _PLAIN.get(kind, "a value of another type")


def _choices(kind: Any) -> str:
    return ", ".join(shown(choice) for choice in get_args(kind))


def _of_meta(base: Any, meta: msgspec.Meta) -> str:
    if meta.description:
        return meta.description
    if meta.ge is not None and meta.le is not None:
        return f"{in_words(base)} from {meta.ge} to {meta.le}"
    if meta.max_length is not None and get_origin(base) is list:
        return f"a list in brackets of at most {meta.max_length} entries, each {in_words(get_args(base)[0])}"
    if meta.max_length is not None:
        return f"{in_words(base)} of {meta.min_length or 0} to {meta.max_length} characters"
    return in_words(base)


def struct_in(kind: Any) -> type[msgspec.Struct] | None:
    """Return the class of the entries where a type is a list of tables, else None."""
    if get_origin(kind) is list:
        (entry,) = get_args(kind)
        if isinstance(entry, type) and issubclass(entry, msgspec.Struct):
            return entry
    return None


def is_text(kind: Any) -> bool:
    """Return whether a setting holds a text, so that a value from the environment needs no quotes."""
    base = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if get_origin(base) is Literal:
        return all(isinstance(choice, str) for choice in get_args(base))
    return base is str


def shown(value: object, limit: int = 60) -> str:
    """Return a value as it would stand in the file, cut to a length that fits a line."""
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, str):
        text = '"' + value.encode("unicode_escape").decode("ascii").replace('"', '\\"') + '"'
    else:
        try:
            text = repr(value)
        except ValueError:  # an integer of more digits than sys.get_int_max_str_digits()
            text = "a number of too many digits"
    return text if len(text) <= limit else text[: limit - 3] + "..."
