"""The numbers in docs/limits.md are those of the code, and the pages for readers in a hurry name what exists."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from datetime import timedelta
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import Settings
from liqod.model.objects import quantity
from tests.project.test_operations import CAMEL_CASE, sources
from tests.project.test_systemd import PROCESSES, bounds

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "limits.md"
HURRIED = [DOCS / name for name in ("faq.md", "limits.md", "tutorial.md", "what-happens-when.md")]

NUMBER = re.compile(r"(\d[\d ]*(?:\.\d+)?) ?([A-Za-z%]*) <!-- (\S+) -->")
"""A number, its unit, and where it is in the code: ``module:NAME``, without ``liqod.``; attributes and keys follow.

Or in a unit of systemd's: ``systemd/NAME:KEY``.
"""
COMMENT = re.compile(r"<!-- [\w.]+:\w")
"""What begins like a reference."""
REFERENCE = re.compile(r"([\w.]+):(\w+)((?:\.\w+|\[[^\]]+\])*)")
SETTING = re.compile(r"`\[([a-z]+)\] ([a-z0-9-]+)")
UNITS = {
    "": 1,
    "%": 1,
    "s": 1,
    "min": 60,
    "h": 3600,
    "day": 86400,
    "days": 86400,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}


def resolved(reference: str) -> Fraction:
    """Return the number that a reference names: seconds of a duration, bytes of a quantity."""
    if reference.startswith("systemd/"):
        unit, _, key = reference.removeprefix("systemd/").partition(":")
        return Fraction(bounds(unit)[key])
    found = REFERENCE.fullmatch(reference)
    if found is None:
        raise ValueError(f"{reference} is no reference")
    value: Any = getattr(import_module(f"liqod.{found[1]}"), found[2])
    for name, key in re.findall(r"\.(\w+)|\[([^\]]+)\]", found[3]):
        if inspect.isclass(value):
            value = value()
        value = getattr(value, name) if name else value[int(key)] if key.isdigit() else value[key]
    if isinstance(value, timedelta):
        value = value.total_seconds()
    return quantity.parse(value) if isinstance(value, str) else Fraction(str(value))


def numbers(text: str) -> Iterator[tuple[str, str, Fraction]]:
    """Yield each number of a page with a reference: as it is written, the reference, and its value."""
    for number, unit, reference in NUMBER.findall(text):
        yield f"{number} {unit}".strip(), reference, Fraction(number.replace(" ", "")) * UNITS[unit]


def wrong(text: str) -> list[str]:
    """Return the numbers of a page that are others in the code."""
    return [
        f"{written}: {reference} is {float(there):g}"
        for written, reference, value in numbers(text)
        if value != (there := resolved(reference))
    ]


class LimitsTests(SynchronousTestCase):
    """The page of limits."""

    def test_numbers(self) -> None:
        """Each number that names a constant or setting has its value."""
        text = PAGE.read_text()
        self.assertGreater(len(list(numbers(text))), 140)
        self.assertEqual(wrong(text), [])

    def test_references_are_read(self) -> None:
        """No reference is left out because nothing before it is a number with a unit."""
        text = PAGE.read_text()
        self.assertEqual(text.count("<!--"), len(NUMBER.findall(text)))

    def test_units(self) -> None:
        """Every bound of a unit of systemd's is on the page."""
        text = PAGE.read_text()
        wanted = {f"systemd/{name}:{key}" for name in PROCESSES for key in bounds(name)}
        self.assertEqual(wanted - {reference for _, reference, _ in numbers(text)}, set())

    def test_a_change_is_seen(self) -> None:
        """Another number, another unit, and a constant that is gone are found."""
        for text in (
            "| frame | 255 KiB <!-- wire.framing:FrameLimits.frame --> |",
            "| frame | 256 MiB <!-- wire.framing:FrameLimits.frame --> |",
            "| peers | 16 385 <!-- model.records.home_policies:MAX_ADDRESSES --> |",
            "| storage | 9 TiB <!-- hosting.tenants.bounds:_OF_TENANT[requests.storage] --> |",
            "| sessions | 511 <!-- config.schema:PeeringSettings.max_sessions --> |",
            "| memory | 5 GiB <!-- systemd/liqod:MemoryMax --> |",
        ):
            self.assertEqual(len(wrong(text)), 1, text)
        self.assertEqual(wrong("| storage | 10 TiB <!-- hosting.tenants.bounds:_OF_TENANT[requests.storage] --> |"), [])
        self.assertRaises(AttributeError, wrong, "| frame | 1 <!-- wire.framing:GONE --> |")


class NamesTests(SynchronousTestCase):
    """Settings and reasons in the pages for readers in a hurry."""

    def test_settings(self) -> None:
        """Each setting that is written with its section exists."""
        known = {
            (section, name.replace("_", "-"))
            for section in Settings.__struct_fields__
            for name in type(getattr(Settings(), section)).__struct_fields__
        }
        named = [(page.name, *found) for page in HURRIED for found in SETTING.findall(page.read_text())]
        self.assertGreater(len(named), 60)
        self.assertEqual([one for one in named if one[1:] not in known], [])

    def test_reasons(self) -> None:
        """Each reason that stands alone in backticks is a word of the code."""
        texts = "\n".join(path.read_text() for path in sources())
        words = {
            word
            for page in HURRIED
            for word in re.findall(r"`(\w+)`", page.read_text())
            if CAMEL_CASE.fullmatch(word) and word not in texts
        }
        self.assertEqual(words, set())
