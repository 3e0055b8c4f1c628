"""Draws mutants: the same seed draws the same ones from the same functions, whatever changes elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from attrs import frozen

from tests.mutants.changes import Change, changes, definition_texts, diff, is_sound

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "trust": (
        "liqod.identity",
        "liqod.peering.trust",
        "liqod.peering.session.protocol",
        "liqod.peering.records.record_gc",
        "liqod.peering.records.tombstones",
    ),
    "relay": ("liqod.peering.relay", "liqod.http1"),
    "restrictions": (
        "liqod.hosting.shadowpods.admission",
        "liqod.hosting.shadowpods.pod_restrictions",
        "liqod.hosting.shadowpods.forge",
    ),
    "policies": (
        "liqod.hosting.tenants.policies",
        "liqod.hosting.tenants.admission",
        "liqod.agent.account.admission_policies",
        "liqod.webhook",
    ),
}
"""Where no mutant may survive: what stands between a peer and this cluster."""
EXCLUDED: Final = ("liqod.cli.setup.demo",)
"""What only the demonstration uses."""


@frozen
class Mutant:
    """One change of one module; ``was`` and ``now`` are the lines that it replaces, joined.

    ``name`` is a digest of the function and of what is changed in it, wherever the function stands.
    """

    name: str
    module: str
    change: Change
    was: str
    now: str

    @property
    def where(self) -> str:
        """Return file and line."""
        return f"{self.module.replace('.', '/')}.py:{self.change.line}"


def is_below(module: str, prefixes: Iterable[str]) -> bool:
    """Return whether a module is one of these, or in one of these packages."""
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes)


def mutants(module: str, source: bytes) -> list[Mutant]:
    """Return all mutants of a module, some of which may not compile."""
    found: list[Mutant] = []
    seen: dict[tuple[str, ...], int] = {}
    texts = definition_texts(source)
    for change in changes(source):
        lines = diff(source, change)
        was, now = (" ".join(line[1:].strip() for line in lines if line[0] == sign) for sign in "-+")
        what = (change.definition, texts[change.definition], change.rule, was, now)
        seen[what] = seen.get(what, 0) + 1
        name = hashlib.sha256("\0".join((*what, str(seen[what]))).encode()).hexdigest()[:10]
        found.append(Mutant(name, module, change, was, now))
    return found


def draw(
    sources: Mapping[str, bytes], seed: int, count: int | None = None, *, only: Collection[str] = ()
) -> Iterator[Mutant]:
    """Yield mutants of modules in the order that the seed gives them, those that compile, up to a count.

    ``only``: the names of those that are wanted.
    """
    everything = [mutant for module, source in sources.items() for mutant in mutants(module, source)]
    if only:
        everything = [mutant for mutant in everything if mutant.name in only]
    everything.sort(key=lambda mutant: hashlib.sha256(f"{seed} {mutant.name}".encode()).digest())
    drawn = 0
    for mutant in everything:
        if drawn == count:
            return
        if is_sound(sources[mutant.module], mutant.change):
            drawn += 1
            yield mutant
