"""Weakened copies of an admission policy: one validation, operation, kind or user less. Pure."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from attrs import frozen

from tests.hosting.shadowpods.admission import Request, refusals, refusals_by_policy
from tests.weakened.attempt import Attempt

Policy = Mapping[str, Any]
_USERS: Final = re.compile(r"'(system:(?:serviceaccount:|kube-controller-manager)[^']*|liqo:cluster:)'")
"""Names of users, and their beginnings, in a condition."""
_NOBODY: Final = "'nobody'"


@frozen
class Weakened:
    """A copy of a policy, and what it is without: the message of a rule, an operation, a kind, or a user."""

    policy: Policy
    without: str

    def __str__(self) -> str:
        return f"{self.name} without {self.without!r}"

    @property
    def name(self) -> str:
        """The name of the policy."""
        return str(self.policy["metadata"]["name"])

    def is_about(self, request: Request, messages: Sequence[str]) -> bool:
        """Return whether the copy may judge a request in another way, which the policy refuses with messages."""
        of = (*messages, request.operation, request.resource, request.user)
        return any(one.startswith(self.without) for one in of) and not (self.without in messages and len(messages) > 1)


def copies(policy: Policy) -> Iterator[Weakened]:
    """Yield the copies."""
    spec = policy["spec"]
    for position, rule in enumerate(spec["validations"]):
        made = copy.deepcopy({**policy})
        # An API server takes no policy without validations.
        made["spec"]["validations"][position] = {"expression": "true", "message": "weakened"}
        yield Weakened(made, rule["message"])
    rules = spec["matchConstraints"]["resourceRules"]
    for field in ("operations", "resources"):
        for one in dict.fromkeys(value for rule in rules for value in rule[field]):
            made = copy.deepcopy({**policy})
            for rule in made["spec"]["matchConstraints"]["resourceRules"]:
                rule[field] = [value for value in rule[field] if value != one]
            yield Weakened(made, one)
    conditions = " ".join(one["expression"] for one in spec["matchConditions"])
    for user in dict.fromkeys(_USERS.findall(conditions)):
        made = copy.deepcopy({**policy})
        for condition in made["spec"]["matchConditions"]:
            condition["expression"] = condition["expression"].replace(f"'{user}'", _NOBODY)
        yield Weakened(made, user)


class Suite:
    """Attempts, and which policy refuses each."""

    def __init__(self, policies: Sequence[Policy], attempts: Iterable[Attempt]) -> None:
        self.policies = policies
        self.attempts = list(attempts)
        self._refusing = [refusals_by_policy(policies, one.request) for one in self.attempts]

    def accepted(self) -> list[str]:
        """Return the attempts that nothing refuses."""
        pairs = zip(self.attempts, self._refusing, strict=True)
        return [str(attempt) for attempt, refusing in pairs if not refusing]

    def ways(self, weakened: Weakened) -> Iterator[Attempt]:
        """Yield the attempts that one policy refuses, and a copy of it in its place would not."""
        for attempt, refusing in zip(self.attempts, self._refusing, strict=True):
            if (
                refusing.keys() == {weakened.name}
                and weakened.is_about(attempt.request, refusing[weakened.name])
                and not refusals([weakened.policy], attempt.request)
            ):
                yield attempt

    def unseen(self, policies: Iterable[Policy] | None = None) -> list[str]:
        """Return the weakened copies that no attempt gets by."""
        of = self.policies if policies is None else policies
        return [str(one) for policy in of for one in copies(policy) if next(self.ways(one), None) is None]
