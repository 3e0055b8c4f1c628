"""The chart's objects for some values: what ``helm template`` prints, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Final

import attrs
import yaml

from liqod.cli.setup.up.chart.evaluate import Evaluation
from liqod.cli.setup.up.chart.syntax import Template, TemplateError, parse

HOOK: Final = "helm.sh/hook"
"""The annotation of what Helm runs beside a release: jobs, their account, the test."""
NAME: Final = "liqod"
"""The release whose objects all are."""

Body = dict[str, Any]


@attrs.frozen
class Release:
    """Where the objects are for, and who manages them (``app.kubernetes.io/managed-by``)."""

    namespace: str = "liqo-system"
    manager: str = "Helm"
    name: str = NAME


def render(values: Mapping[str, Any], release: Release) -> list[Body]:
    """Return the chart's objects for values beside its defaults, hooks among them; raises TemplateError."""
    chart = yaml.safe_load(_file("Chart.yaml"))
    data = {
        "Values": merged(default_values(), values),
        "Release": {"Name": release.name, "Namespace": release.namespace, "Service": release.manager},
        "Chart": {"Name": chart["name"], "Version": chart["version"], "AppVersion": str(chart["appVersion"])},
        "Files": {"Get": _file},
    }
    templates = _templates()
    evaluation = Evaluation(templates.values())
    objects: list[Body] = []
    for name, template in templates.items():
        if not name.endswith(".yaml"):
            continue
        try:
            text = evaluation.text_of(template.nodes, data)
            objects += [one for one in yaml.safe_load_all(text) if one]
        except TemplateError as error:
            raise TemplateError(f"{name}: {error}") from error
        except yaml.YAMLError as error:
            raise TemplateError(f"{name} prints no YAML: {error}") from error
    return objects


def notes(values: Mapping[str, Any], release: Release) -> str:
    """Return what Helm prints after an installation."""
    templates = _templates()
    chart = yaml.safe_load(_file("Chart.yaml"))
    data = {
        "Values": merged(default_values(), values),
        "Release": {"Name": release.name, "Namespace": release.namespace},
        "Chart": {"AppVersion": str(chart["appVersion"])},
    }
    return Evaluation(templates.values()).text_of(templates["NOTES.txt"].nodes, data)


def is_hook(body: Mapping[str, Any]) -> bool:
    """Return whether an object is Helm's to run, and no part of what is installed."""
    return HOOK in (body["metadata"].get("annotations") or {})


def default_values() -> Body:
    """Return the values of the chart."""
    found: Body = yaml.safe_load(_file("values.yaml"))
    return found


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> Body:
    """Return values with others over them: tables are merged, and None removes, as Helm does. Pure."""
    result = dict(base)
    for key, value in over.items():
        there = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(there, Mapping):
            result[key] = merged(there, value)
        else:
            result[key] = value
    return result


def _place() -> Traversable:
    return resources.files("liqod.cli.setup.up.chart").joinpath("files")


def _file(name: str) -> str:
    """Return the text of a file of the chart, empty where there is none."""
    place = _place()
    for part in name.split("/"):
        place = place.joinpath(part)
    return place.read_text("utf-8") if place.is_file() else ""


@cache
def _templates() -> dict[str, Template]:
    """Return the files with templates, by their names, in the order of these."""
    found = {file.name: file for file in _place().joinpath("templates").iterdir() if file.is_file()}
    tests = _place().joinpath("templates").joinpath("tests")
    found |= {f"tests/{file.name}": file for file in (tests.iterdir() if tests.is_dir() else ())}
    return {name: parse(found[name].read_text("utf-8"), name) for name in sorted(found)}
