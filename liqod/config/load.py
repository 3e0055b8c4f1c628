"""Read the configuration: a TOML file, then the environment, then every check, with all complaints at once.

``LIQOD_<SECTION>__<KEY>`` overrides a setting (``LIQOD_PEERING__ADVERTISE_PORT=5900``); a text needs no quotes there,
anything else is written as in the file. Sections and keys are walked field by field, so that one wrong value hides no
other.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from liqod.config import checks
from liqod.config.allowed import in_words, is_text, shown, struct_in
from liqod.config.schema import Settings

DEFAULT_PATH = "/etc/liqod/liqod.toml"
PREFIX = "LIQOD_"
_MAX_BYTES = 1 << 20
_LINE = re.compile(r"\(at line (\d+), column (\d+)\)")


class SettingsError(Exception):
    """The configuration cannot be used; ``problems`` lists all defects, one sentence each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def load(path: str, environ: Mapping[str, str], *, look_at_files: bool = True) -> Settings:
    """Return the settings in a file, overridden by the environment; raises SettingsError with all problems.

    An empty path means defaults and environment alone. Files that the settings name must be readable, unless
    ``look_at_files`` is false.
    """
    return parse(_read(path) if path else "", environ, source=path or "the configuration", look_at_files=look_at_files)


def parse(text: str, environ: Mapping[str, str], *, source: str = "", look_at_files: bool = False) -> Settings:
    """Return the settings in a text, overridden by the environment; raises SettingsError with all problems."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError([_syntax(source, str(error))]) from None
    except RecursionError:
        raise SettingsError([f"{source or 'the configuration'}: is nested deeper than any setting is"]) from None
    except ValueError:  # of int(), for more digits than sys.get_int_max_str_digits()
        raise SettingsError([f"{source or 'the configuration'}: has a number of too many digits"]) from None
    problems: list[str] = []
    _override(tables, environ, problems)
    sections = _sections()
    values: dict[str, Any] = {}
    for name, given in tables.items():
        kind = sections.get(name)
        if kind is None:
            problems.append(_unknown_section(name, given, sections))
        elif not isinstance(given, dict):
            problems.append(f"{name} = {shown(given)}: must be a section: a line [{name}] and its settings below it")
        else:
            values[name] = _table(kind, given, name, problems)
    settings = Settings(**{name: kind() for name, kind in sections.items()} | values)
    problems += checks.problems(settings)
    if look_at_files:
        problems += _unreadable(settings)
    if problems:
        raise SettingsError(problems)
    return settings


def _read(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        why = (error.strerror or "cannot be read").lower()
        raise SettingsError([f"{path}: {why}; name the configuration with --config"]) from None
    if len(content) > _MAX_BYTES:
        raise SettingsError([f"{path}: is larger than 1 MiB, which no configuration of liqod is"])
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SettingsError([f"{path}: line {line}: is not UTF-8 text, which TOML must be"]) from None


def _syntax(source: str, complaint: str) -> str:
    found = _LINE.search(complaint)
    where = f"line {found[1]}, column {found[2]}" if found else "at the end"
    what = _LINE.sub("", complaint).strip()
    return f"{source or 'the configuration'}: {where}: is not TOML: {what[:1].lower()}{what[1:]}"


def _sections() -> dict[str, type[msgspec.Struct]]:
    return {field.encode_name: field.type for field in msgspec.structs.fields(Settings)}


def _override(tables: dict[str, Any], environ: Mapping[str, str], problems: list[str]) -> None:
    """Override the file's values by the environment's; names without ``__`` are ignored."""
    sections = _sections()
    for variable in sorted(environ):
        section, double, key = variable.removeprefix(PREFIX).partition("__")
        if not variable.startswith(PREFIX) or not double:
            continue
        name, key = section.lower(), key.lower().replace("_", "-")
        if name not in sections:
            problems.append(f"{variable}: there is no section {name!r}{_suggest(name, sections)}")
            continue
        fields = {field.encode_name: field.type for field in msgspec.structs.fields(sections[name])}
        if key not in fields:
            problems.append(f"{variable}: there is no setting {name}.{key}{_suggest(key, fields)}")
            continue
        table = tables.setdefault(name, {})
        if isinstance(table, dict):
            table[key] = environ[variable] if is_text(fields[key]) else _toml_value(environ[variable])


def _toml_value(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _table(kind: type[msgspec.Struct], given: dict[str, Any], where: str, problems: list[str]) -> Any:
    """Convert a table field by field; what is wrong goes to ``problems`` and leaves its default behind."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for key, value in given.items():
        field = fields.get(key)
        if field is None:
            problems.append(f"{where}.{key}: is not a setting{_belongs(key, where, fields)}")
            continue
        entry = struct_in(field.type)
        if entry is not None and isinstance(value, list) and all(isinstance(item, dict) for item in value):
            made = [_table(entry, item, f"{where}.{key}[{index}]", problems) for index, item in enumerate(value)]
            values[field.name] = [item for item in made if item is not None]
            continue
        try:
            values[field.name] = _convert(value, field.type)
        except ValueError:
            problems.append(f"{where}.{key} = {shown(value)}: must be {in_words(field.type)}")
    missing = [field for field in fields.values() if field.required and field.name not in values]
    problems += [
        f"{where}.{field.encode_name}: is missing; must be {in_words(field.type)}"
        for field in missing
        if field.encode_name not in given
    ]
    return None if missing else kind(**values)


def _convert(value: object, kind: Any) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("not a finite number")
    return msgspec.convert(value, type=kind)


def _unknown_section(name: str, given: object, sections: Mapping[str, object]) -> str:
    if isinstance(given, dict):
        return f"[{name}]: is not a section{_suggest(name, sections)}"
    return f"{name}: is not a setting of its own{_belongs(name, '', {})}"


def _belongs(key: str, where: str, fields: Mapping[str, object]) -> str:
    """Return a hint to the section that an unknown key belongs to."""
    homes = [
        section
        for section, kind in _sections().items()
        if section != where and any(field.encode_name == key for field in msgspec.structs.fields(kind))
    ]
    if homes:
        return "; it belongs to " + " or ".join(f"[{home}]" for home in homes)
    return _suggest(key, fields)


def _suggest(word: str, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(word.replace("_", "-"), known, n=1)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; there are {', '.join(known)}" if known else ""


def _unreadable(settings: Settings) -> list[str]:
    named = [
        ("identity.certificate", settings.identity.certificate),
        ("identity.key", settings.identity.key),
        ("identity.ca", settings.identity.ca),
        ("metrics.certificate", settings.metrics.certificate),
        ("metrics.key", settings.metrics.key),
        ("metrics.token-file", settings.metrics.token_file),
        *(("kubernetes.kubeconfig", one) for one in settings.kubernetes.kubeconfig.split(os.pathsep)),
    ]
    return [
        f"{where} = {shown(name)}: must be a file that can be read ({why})"
        for where, name in named
        if name and (why := _why_unreadable(name))
    ]


def _why_unreadable(name: str) -> str:
    try:
        with Path(name).expanduser().open("rb"):
            return ""
    except OSError as error:
        return (error.strerror or "cannot be read").lower()
    except (RuntimeError, ValueError):  # of expanduser, without a home directory; of open, for a NUL
        return "no name of a file"
