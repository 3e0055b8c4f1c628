"""Tests of the texts in liqod's definitions, which ``kubectl explain`` shows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from liqod.kube import manifests

FEWEST_WORDS: Final = 4
MAX_BYTES: Final = 128 * 1024
"""Bytes of a definition as JSON: far under what etcd stores, and kubectl keeps a second copy in an annotation."""


def versions() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each version of each definition, with its name."""
    for definition in manifests.definitions():
        for version in definition["spec"]["versions"]:
            yield f"{definition['metadata']['name']} {version['name']}", version


def properties(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every property of a schema with its path, also those in items of lists and in values of maps."""
    for name, inner in (schema.get("properties") or {}).items():
        yield f"{path}.{name}", inner
        yield from properties(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from properties(schema[key], f"{path}[]")


def is_sentence(text: str) -> bool:
    """Return whether a text reads as a sentence: a capital, some words, a period, and all on one line."""
    is_long_enough = len(text.split()) >= FEWEST_WORDS
    return is_long_enough and text[0].isupper() and text.endswith(".") and "\n" not in text


class DescriptionTests(SynchronousTestCase):
    """What definitions say about their fields."""

    def test_every_field_is_described(self) -> None:
        """Every property has a description that is a sentence, and so has the record as a whole."""
        found = 0
        wrong = []
        for name, version in versions():
            schema = version["schema"]["openAPIV3Schema"]
            for path, field in (("", schema), *properties(schema)):
                found += 1
                if not is_sentence(field.get("description") or ""):
                    wrong.append(f"{name}{path}: {field.get('description')!r}")
        self.assertGreater(found, 300)
        self.assertEqual(wrong, [])

    def test_every_column_is_described(self) -> None:
        """Every column that kubectl prints has a description that is a sentence."""
        wrong = [
            f"{name}: {column['name']}: {column.get('description')!r}"
            for name, version in versions()
            for column in version.get("additionalPrinterColumns") or ()
            if not is_sentence(column.get("description") or "")
        ]
        self.assertEqual(wrong, [])

    def test_definitions_stay_small(self) -> None:
        """Descriptions do not make a definition too large to be stored, or to be applied by kubectl."""
        sizes = {one["metadata"]["name"]: len(json.dumps(one)) for one in manifests.definitions()}
        self.assertEqual({name: size for name, size in sizes.items() if size > MAX_BYTES}, {})
