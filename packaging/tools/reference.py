"""The reference pages of the site, made of the code: commands, settings, records, metrics and codes.

They are made when the site is built and kept nowhere, so that none can be out of date.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import manual
import msgspec
import yaml
from msgspec import inspect
from project import CHECKOUT

from liqod.agent.metrics.daemon import register
from liqod.cli.console.errors import MEANINGS
from liqod.cli.main import cli
from liqod.cli.status.reasons import Reason, reasons
from liqod.config.schema import Settings
from liqod.kube.cache.informer import Informer
from liqod.metrics.registry import Registry

DEFINITIONS: Final = CHECKOUT / "liqod" / "kube" / "manifests"
WIDTH: Final = 100
_SPAN: Final = re.compile(r"(``.+?``|`[^`]+`)")
_SECTION: Final = re.compile(r"\[([a-z]+)\]")
_SETTING: Final = re.compile(r"#([a-z0-9-]+) = ")
_SERIES: Final = re.compile(r"^(liqod_\w+?)(?:_bucket|_sum|_count)?(?:\{(.*)\})? ", re.MULTILINE)
_MADE: Final = "This page is made of the code.\n"


def pages() -> dict[str, str]:
    """Return the pages by their names in the folder ``reference``."""
    return {
        "commands.md": commands(),
        "settings.md": settings(),
        "records.md": records(),
        "metrics.md": metrics(),
        "codes.md": codes(),
    }


def cell(text: str) -> str:
    """Return a text for a cell of a table: one line, in which nothing but code spans is Markdown. Pure."""
    parts = _SPAN.split(" ".join(text.split()))
    return "".join(part if number % 2 else _literal(part) for number, part in enumerate(parts))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; its cells are Markdown already. Pure."""
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"


def _literal(text: str) -> str:
    return re.sub(r"([\\*_|\[\]])", r"\\\1", text).replace("&", "&amp;").replace("<", "&lt;")


def _code(text: str) -> str:
    return f"`{text}`" if text else "-"


def commands() -> str:
    """Return the page of the commands, each with what its ``--help`` prints."""
    parts = ["# Commands\n", f"{_MADE}[cli.md](../cli.md) says what all of them have in common.\n"]
    parts += [f"## {path}\n\n```text\n{text.rstrip()}\n```\n" for path, text in manual.commands(cli, WIDTH)]
    return "\n".join(parts)


def settings() -> str:
    """Return the page of the settings: type, default, and the sentence of the shipped configuration."""
    parts = [
        "# Settings\n",
        f"{_MADE}The settings are those of `/etc/liqod/liqod.toml`. The environment has them as well: "
        "`LIQOD_PEERING__LISTEN=tcp:5900` is `listen` in the section `[peering]`.\n",
    ]
    said = sentences((CHECKOUT / "etc" / "liqod.toml").read_text(encoding="utf-8"))
    for section in msgspec.structs.fields(Settings):
        values = getattr(Settings(), section.name)
        name = section.encode_name
        first = (type(values).__doc__ or "").partition("\n\n")[0]
        rows = [
            [
                _code(field.encode_name),
                cell(kind(inspect.type_info(field.type))),
                _code(shown(getattr(values, field.name))),
                cell(said[name, field.encode_name]),
            ]
            for field in msgspec.structs.fields(type(values))
        ]
        parts += [f"## [{name}]\n", f"{cell(first)}\n", table(("setting", "type", "default", "what"), rows)]
    return "\n".join(parts)


def sentences(text: str) -> dict[tuple[str, str], str]:
    """Return what stands above each setting in a configuration file, by section and setting. Pure."""
    found: dict[tuple[str, str], str] = {}
    section, lines = "", list[str]()
    for line in text.splitlines():
        if begun := _SECTION.fullmatch(line):
            section, lines = begun[1], []
        elif setting := _SETTING.match(line):
            found[section, setting[1]] = " ".join(lines)
            lines = []
        elif line.startswith("# "):
            lines.append(line[2:])
        else:
            lines = []
    return found


def shown(value: object) -> str:
    """Return a value as the configuration file has it. Pure."""
    plain = msgspec.to_builtins(value)
    if isinstance(plain, Mapping):
        return "{" + ", ".join(f"{key} = {shown(one)}" for key, one in plain.items()) + "}"
    if isinstance(plain, list):
        return "[" + ", ".join(map(shown, plain)) + "]"
    return json.dumps(plain, ensure_ascii=False)


def kind(info: inspect.Type) -> str:
    """Return which values a setting may have, in words. Pure."""
    if isinstance(info, inspect.Metadata):
        given = (info.extra_json_schema or {}).get("description", "")
        return str(given) or kind(info.type)
    if isinstance(info, inspect.LiteralType):
        return " or ".join(f"`{json.dumps(value)}`" for value in info.values)
    if isinstance(info, inspect.UnionType):
        return " or ".join(kind(one) for one in info.types)
    if isinstance(info, inspect.ListType):
        most = f", at most {info.max_length}" if info.max_length is not None else ""
        return f"list of: {kind(info.item_type)}{most}"
    if isinstance(info, inspect.DictType):
        return f"table, each value: {kind(info.value_type)}"
    if isinstance(info, inspect.StructType):
        return "table: " + "; ".join(f"`{field.encode_name}`: {kind(field.type)}" for field in info.fields)
    if isinstance(info, inspect.IntType | inspect.FloatType):
        return ("whole number" if isinstance(info, inspect.IntType) else "number") + _bounds(info)
    words: dict[type[inspect.Type], str] = {
        inspect.StrType: "text",
        inspect.BoolType: "`true` or `false`",
        inspect.NoneType: "nothing",
    }
    return words[type(info)]


def _bounds(info: inspect.IntType | inspect.FloatType) -> str:
    given = {"from": info.ge, "more than": info.gt, "to": info.le, "less than": info.lt}
    words = [f" {word} {bound:g}" for word, bound in given.items() if bound is not None]
    return "".join(words)


def records() -> str:
    """Return the page of the records: each field of each definition, with what its schema says."""
    parts = ["# Records\n", f"{_MADE}[operations.md](../operations.md) says who writes which record.\n"]
    for path in sorted(DEFINITIONS.glob("*.yaml")):
        body = yaml.safe_load(path.read_text(encoding="utf-8"))
        if body["kind"] != "CustomResourceDefinition":
            continue
        spec = body["spec"]
        names = spec["names"]
        short = ", ".join(f"`{name}`" for name in names.get("shortNames", []))
        parts += [f"## {names['kind']}\n"]
        for version in spec["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            where = "in a namespace" if spec["scope"] == "Namespaced" else "of the cluster"
            parts += [
                f"`{spec['group']}/{version['name']}`, {where}; `kubectl get {names['plural']}`"
                f"{f', short {short}' if short else ''}.\n",
                f"{cell(schema.get('description', ''))}\n",
                table(("field", "type", "what"), [list(row) for row in fields(schema)]),
            ]
    return "\n".join(parts)


def fields(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield path, type and meaning of each field in a schema of OpenAPI, as cells of a table. Pure."""
    required = schema.get("required", ())
    for name, inside in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        needed = ", required" if name in required else ""
        yield _code(here), cell(_type(inside) + needed), cell(inside.get("description", ""))
        yield from fields(inside, here)
        for key, mark in (("items", "[]"), ("additionalProperties", ".*")):
            if isinstance(inside.get(key), Mapping):
                yield from fields(inside[key], f"{here}{mark}")


def _type(schema: Mapping[str, Any]) -> str:
    words = str(schema.get("type", "any"))
    if schema.get("x-kubernetes-int-or-string"):
        words = "integer or string"
    if "items" in schema:
        words = f"list of {_type(schema['items'])}"
    elif isinstance(schema.get("additionalProperties"), Mapping):
        words = f"map of {_type(schema['additionalProperties'])}"
    if "enum" in schema:
        words += ": " + ", ".join(f"`{value}`" for value in schema["enum"])
    limits = {"minimum": "from", "maximum": "to", "maxLength": "length at most", "maxItems": "at most"}
    return words + "".join(f", {word} {schema[key]}" for key, word in limits.items() if key in schema)


@attrs.frozen
class Metric:
    """A metric as it is registered."""

    kind: str
    name: str
    text: str
    labels: Sequence[str]


class Recorded(Registry):
    """A registry that notes what is registered, and reads nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Metric] = []

    def gauge(self, name: str, text: str, labels: Sequence[str], read: object) -> None:
        """Note a gauge."""
        self.found.append(Metric("gauge", name, text, labels))

    def counter(self, name: str, text: str, labels: Sequence[str], read: object) -> None:
        """Note a counter, by the name under which it is served."""
        self.found.append(Metric("counter", f"{name}_total", text, labels))

    def histogram(self, name: str, text: str, labels: Sequence[str], read: object) -> None:
        """Note a histogram."""
        self.found.append(Metric("histogram", name, text, labels))


class _Daemon:
    """A daemon that does nothing, whose numbers are to be registered."""

    caches: list[Informer[Any]] = []
    client = None
    home = None
    features = None
    node = None
    pages = None

    def __init__(self, registry: Registry) -> None:
        self.registry = registry


def registered() -> list[Metric]:
    """Return every metric of a daemon."""
    registry = Recorded()
    registry.observe_lag(0.0)
    registry.reconciled("NAME", "settled", 0.0)
    own = of_text(registry.text().decode())
    register(_Daemon(registry))
    return [*own, *registry.found]


def of_text(text: str) -> list[Metric]:
    """Return the metrics in a text of Prometheus' format, without those that say when another was created. Pure."""
    labels: dict[str, list[str]] = {}
    for name, pairs in _SERIES.findall(text):
        labels[name] = [label for label in re.findall(r"(\w+)=\"", pairs or "") if label != "le"]
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    helps = re.findall(r"^# HELP (\w+) (.+)$", text, re.MULTILINE)
    return [Metric(kinds[name], name, said, labels[name]) for name, said in helps if not name.endswith("_created")]


def metrics() -> str:
    """Return the page of the metrics."""
    rows = [
        [_code(one.name), one.kind, ", ".join(map(_code, one.labels)) or "-", cell(one.text)]
        for one in sorted(registered(), key=lambda one: one.name)
    ]
    head = ("metric", "type", "labels", "what")
    return f"# All metrics\n\n{_MADE}[metrics.md](../metrics.md) says more of each.\n\n{table(head, rows)}"


def codes() -> str:
    """Return the page of the codes: of commands that fail, and the reasons in records, events and problems."""
    failed = [[_code(code), cell(meaning), cell(advice)] for code, (meaning, advice) in sorted(MEANINGS.items())]
    known = sorted((code, row) for code, rows in reasons().items() for row in map(_of_reason, rows))
    return "\n".join(
        (
            "# Codes\n",
            f"{_MADE}`liqodctl explain CODE` says the same.\n",
            "## Of commands\n",
            table(("code", "what is wrong", "what to do"), failed),
            "## Reasons\n",
            "In conditions, events, problems (`liqodctl status`, `liqod_problems`) and refusals.\n",
            table(("reason", "where", "what it means", "what to do"), [[_code(code), *row] for code, row in known]),
        )
    )


def _of_reason(reason: Reason) -> tuple[str, str, str]:
    return cell(reason.section), _from_operations(reason.meaning), _from_operations(reason.advice)


def _from_operations(text: str) -> str:
    """Return what is Markdown already, with links that lead from here where they led from the page of operations."""
    return re.sub(r"\]\((?=#)", "](../operations.md", re.sub(r"\]\((?!\w+:|#)", "](../", text))
