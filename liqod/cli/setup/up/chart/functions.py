"""The functions of Helm's templates that the chart uses, with the results that Helm's have. Pure.

Sources: Go, package text/template; https://masterminds.github.io/sprig/; Helm, pkg/engine/funcs.go.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import yaml

from liqod.cli.setup.up.chart.syntax import TemplateError

WIDE: Final = 1 << 20
"""Characters of a line: texts are never broken into several ones."""


def is_true(value: Any) -> bool:
    """Return whether a condition holds: nothing, zero and what is empty are false."""
    return bool(value)


def to_text(value: Any) -> str:
    """Return a value as it is printed; raises TemplateError for what has no text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise TemplateError(f"{value!r} cannot be printed: is the value set?")


def to_yaml(value: Any) -> str:
    """Return a value as YAML, without a line feed at its end."""
    text: str = yaml.safe_dump(value, sort_keys=True, width=WIDE, allow_unicode=True)
    # A document of one plain value ends with a mark.
    return text.removesuffix("\n").removesuffix("\n...")


def indent(width: int, text: str) -> str:
    """Return a text with each of its lines moved to the right."""
    pad = " " * width
    return pad + text.replace("\n", f"\n{pad}")


def _or(*values: Any) -> Any:
    return next((value for value in values if is_true(value)), values[-1])


def _and(*values: Any) -> Any:
    return next((value for value in values if not is_true(value)), values[-1])


def _dict(*pairs: Any) -> dict[str, Any]:
    if len(pairs) % 2:
        raise TemplateError("dict takes pairs of a key and a value")
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def _set(target: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    target[key] = value
    return target


def _fail(message: str) -> Any:
    raise TemplateError(message)


FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "and": _and,
    "default": lambda fallback, value: value if is_true(value) else fallback,
    "dict": _dict,
    "eq": lambda one, other: one == other,
    "fail": _fail,
    "fromYaml": yaml.safe_load,
    "get": lambda table, key: table.get(key, ""),
    "gt": lambda one, other: one > other,
    "indent": indent,
    "int": int,
    "list": lambda *values: list(values),
    "nindent": lambda width, text: f"\n{indent(width, text)}",
    "not": lambda value: not is_true(value),
    "or": _or,
    "prepend": lambda values, value: [value, *values],
    "quote": lambda value: json.dumps(to_text(value), ensure_ascii=False),
    "set": _set,
    "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
    "ternary": lambda yes, no, condition: yes if condition else no,
    "toJson": lambda value: json.dumps(value, sort_keys=True, separators=(",", ":")),
    "toYaml": to_yaml,
    "trim": lambda text: text.strip(),
}
"""By their names; ``include`` is the evaluation's own."""
