"""Mutants that change nothing that anybody could notice, each with the reason."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from tests.mutants.sample import Mutant


@frozen
class Equivalent:
    """A change of one line of one definition that no test can see."""

    module: str
    definition: str
    now: str
    reason: str


EQUIVALENT: Final[tuple[Equivalent, ...]] = ()


def reason_of(mutant: Mutant) -> str:
    """Return why a mutant is known to be equivalent, else nothing."""
    for known in EQUIVALENT:
        if (known.module, known.definition, known.now) == (mutant.module, mutant.change.definition, mutant.now):
            return known.reason
    return ""
