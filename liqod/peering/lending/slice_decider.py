"""Decides about slices: what a borrower may have of a class, and of what is free of its offer. Pure.

What a class bounds is reduced to that; what is more than is free of the offer is refused, and a slice that was to grow
keeps what it had. What a slice has it keeps, until a class or a limit of the settings is lowered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Final, Literal

import attrs
import msgspec

from liqod.model.objects import quantity
from liqod.model.objects.meta import MAX_MESSAGE
from liqod.model.objects.quantity import Resources
from liqod.model.records.offer_rules import is_qualified_name
from liqod.model.records.views import LentSlice
from liqod.peering.lending.advert import is_device, round_down
from liqod.wire.check import MAX_SLICE_RESOURCES

Decision = Literal["Granted", "Reduced", "Refused"]
_ZERO: Final = Fraction(0)


@attrs.frozen
class SliceAsk:
    """What a borrower asks for; ``revision`` is the borrower's number of it."""

    name: str
    slice_class: str
    resources: Mapping[str, str]
    revision: int


@attrs.frozen(kw_only=True)
class SlicePolicy:
    """What slices of one borrower may be.

    ``classes``: the most of a resource in one slice, by class; what is not named has no bound. ``offered``: the offer
    on record, of which slices are a part. ``used``: what the pods of the borrower request here. ``limits``: the most
    that the borrower gets in all.
    """

    classes: Mapping[str, Resources]
    offered: Resources
    used: Resources
    limits: Resources


@attrs.frozen
class SliceRuling:
    """A decision, and what the slice has from now on: also after a refusal, where it had something before."""

    decision: Decision
    resources: Resources
    reason: str = ""
    message: str = ""


@attrs.frozen
class Settlement:
    """The slices as they are to be on record, and of each name the revision that was decided on, with the ruling."""

    slices: tuple[LentSlice, ...]
    rulings: Mapping[str, tuple[int, SliceRuling]]


def amount_problem(resources: Mapping[str, str]) -> tuple[str, str] | None:
    """Return why nobody can ask for an amount, as a reason and a sentence; None: one can. Both sides apply it."""
    if len(resources) > MAX_SLICE_RESOURCES:
        return "TooManyResources", f"{len(resources)} resources are asked for; {MAX_SLICE_RESOURCES} are allowed"
    try:
        asked = quantity.parse_all(resources)
    except ValueError as error:
        return "BadQuantity", str(error)
    for name, value in asked.items():
        if not is_qualified_name(name):
            return "BadResource", f"{name[:80]!r} is not the name of a resource"
        if value < 0:
            return "NegativeAmount", f"{name}: {resources[name]} is negative"
        if is_device(name) and value.denominator != 1:
            return "NotWhole", f"{name}: {resources[name]} is not a whole number of devices"
    if not any(asked.values()):
        return "NothingAsked", "no resource is asked for, or 0 of each"
    return None


def room(offered: Resources, others: Iterable[Resources], used: Resources, own: Resources) -> dict[str, Fraction]:
    """Return what a slice may have of an offer: what neither other slices have, nor pods beside them use.

    Which pods run in which slice is not known here: of ``used`` what is more than ``own`` counts, or what the others
    have, whichever is more.
    """
    taken = quantity.add(others)
    return {
        name: max(_ZERO, value - max(taken.get(name, _ZERO), used.get(name, _ZERO) - own.get(name, _ZERO)))
        for name, value in offered.items()
    }


def decide(ask: SliceAsk, before: Resources, classes: Mapping[str, Resources], free: Resources) -> SliceRuling:
    """Return the ruling on what is asked for; ``before``: what the slice has, which ``free`` includes."""
    bounds = classes.get(ask.slice_class)
    if bounds is None:
        return SliceRuling("Refused", before, "UnknownClass", _unknown_class(ask.slice_class, classes))
    if (problem := amount_problem(ask.resources)) is not None:
        return SliceRuling("Refused", before, *problem)
    # Whole units, as the offer has them: a grant stays a part of it.
    asked = {name: round_down(name, value) for name, value in quantity.parse_all(ask.resources).items()}
    asked = {name: value for name, value in asked.items() if value}
    if not asked:
        return SliceRuling("Refused", before, "NothingAsked", "less than one unit of each resource is asked for")
    granted = {name: min(value, bounds.get(name, value)) for name, value in asked.items()}
    granted = {name: value for name, value in granted.items() if value > 0}
    cut = _cut(asked, granted)
    if not granted:
        return SliceRuling("Refused", before, "ClassLimit", f"the class {ask.slice_class} has nothing of it: {cut}")
    if over := quantity.exceeding(granted, free):
        parts = ", ".join(f"{name} {_shown(name, granted)} of {_shown(name, free)}" for name in sorted(over))
        return SliceRuling("Refused", before, "TooLarge", f"more than is free of the offer: {parts}")
    if cut:
        return SliceRuling(
            "Reduced", granted, "ClassLimit", f"as much as the class {ask.slice_class} has for one: {cut}"
        )
    return SliceRuling("Granted", granted)


def settle(slices: Sequence[LentSlice], asks: Iterable[SliceAsk], policy: SlicePolicy) -> Settlement:
    """Return the slices after the settings and all that is asked for were applied, in this order."""
    kept: dict[str, LentSlice] = {}
    rulings: dict[str, tuple[int, SliceRuling]] = {}
    left = dict(policy.limits)
    for one in slices:
        ruling = _review(one, policy.classes, left)
        rulings[one.name] = one.revision, ruling
        if ruling.resources:
            kept[one.name] = _recorded(one, ruling)
            left = quantity.subtract(left, ruling.resources)
    for ask in asks:
        before = kept.get(ask.name)
        own = amounts(before) if before is not None else {}
        others = [amounts(one) for one in kept.values() if one.name != ask.name]
        ruling = decide(ask, own, policy.classes, room(policy.offered, others, policy.used, own))
        if before is not None and _is_of(before, ask) and (not before.reason or ruling.decision == "Refused"):
            # It has what was decided on the same request: what is free by now takes nothing of it.
            kept[ask.name] = msgspec.structs.replace(before, revision=ask.revision)
            rulings[ask.name] = ask.revision, rulings[ask.name][1]
            continue
        rulings[ask.name] = ask.revision, ruling
        if ruling.decision != "Refused":
            kept[ask.name] = _recorded(
                LentSlice(name=ask.name, slice_class=ask.slice_class, revision=ask.revision, asked=dict(ask.resources)),
                ruling,
            )
    return Settlement(tuple(kept.values()), rulings)


def amounts(one: LentSlice) -> dict[str, Fraction]:
    """Return what a slice on record has; what cannot be read there counts as nothing."""
    try:
        return quantity.parse_all(one.resources)
    except ValueError:
        return {}


def total(slices: Iterable[LentSlice]) -> dict[str, Fraction]:
    """Return what slices have together."""
    return quantity.add(map(amounts, slices))


def unused(slices: Iterable[LentSlice], used: Resources) -> dict[str, Fraction]:
    """Return what slices have and a borrower's pods do not use: it is free on the nodes, and promised."""
    return {name: max(_ZERO, value) for name, value in quantity.subtract(total(slices), used).items()}


def _review(one: LentSlice, classes: Mapping[str, Resources], left: Resources) -> SliceRuling:
    """Return the ruling on a slice by the settings as they are now."""
    bounds = classes.get(one.slice_class)
    if bounds is None:
        return SliceRuling("Refused", {}, "UnknownClass", _unknown_class(one.slice_class, classes))
    has = amounts(one)
    by_class = {name: min(value, bounds.get(name, value)) for name, value in has.items()}
    granted = {name: min(value, max(_ZERO, left.get(name, value))) for name, value in by_class.items()}
    granted = {name: value for name, value in granted.items() if value > 0}
    if has and granted == has:
        return SliceRuling("Reduced" if one.reason else "Granted", has, one.reason, one.message)
    reason = "ClassLimit" if by_class != has else "LimitReached"
    message = f"the lender lowered what it lends: {_cut(has, granted)}"
    return SliceRuling("Reduced" if granted else "Refused", granted, reason, message)


def _is_of(one: LentSlice, ask: SliceAsk) -> bool:
    return one.slice_class == ask.slice_class and one.asked == dict(ask.resources)


def _recorded(one: LentSlice, ruling: SliceRuling) -> LentSlice:
    return msgspec.structs.replace(
        one,
        resources=quantity.render_all(ruling.resources),
        reason=ruling.reason,
        message=ruling.message[:MAX_MESSAGE],
    )


def _cut(asked: Resources, granted: Resources) -> str:
    """Return of which resources there is less than was asked for; empty: of none."""
    return ", ".join(
        f"{name} {_shown(name, granted)} of {_shown(name, asked)}"
        for name in sorted(asked)
        if granted.get(name, _ZERO) < asked[name]
    )


def _shown(name: str, resources: Resources) -> str:
    return quantity.render(resources.get(name, _ZERO), resource=name)


def _unknown_class(name: str, classes: Mapping[str, Resources]) -> str:
    known = ", ".join(sorted(classes)[:20])
    return f"there is no class {name} here; there {'are ' + known if known else 'is none'}"
