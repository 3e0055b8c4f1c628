"""A status that is written replaces the one before: no reason of an earlier state is left in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.pods.restarts import tally
from liqod.kubelet.pods.status import (
    ended_status,
    forge_status,
    missing_status,
    not_offloaded_status,
    refused_status,
)
from tests.kubelet.pods.test_decide import CONTEXT, NOW, RUNNING, SPEC

Status = dict[str, Any]
NONE: Status = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}
OWN = ("liqo.io/Offloaded", "Ready", "ContainersReady")


def seen(status: Status) -> Callable[[Status], Status]:
    """Return the builder for this status of the remote pod."""
    return lambda home: forge_status(
        home, status, tally=tally(None, home, "r1", status), context=CONTEXT, now=NOW, spec=SPEC
    )


def failed(home: Status) -> Status:
    return ended_status(missing_status(home, "Over", "over", NOW), "Failed", "Over", "over")


def waits(word: str) -> Status:
    """Return the status of a remote pod that is not ready, with this word in it."""
    condition = {"type": "Ready", "status": "False", "reason": word, "message": word}
    return {"phase": "Pending", "reason": word, "message": word, "conditions": [condition]}


BUILDERS: dict[str, tuple[Callable[[Status], Status], set[str]]] = {
    "runs": (seen(RUNNING), set()),
    "starts": (seen({"phase": "Pending"}), {"RemotePodPending", "the remote pod does not say that it is ready"}),
    "waits": (seen(waits("Theirs")), {"Theirs"}),
    "is missing": (lambda home: missing_status(home, "Missing", "missing", NOW), {"Missing", "missing"}),
    "is refused": (lambda home: refused_status(home, "Refused", "refused", NOW), {"Refused", "refused"}),
    "is not offloaded": (
        lambda home: not_offloaded_status(home, "excluded", NOW),
        {"OffloadingBackOff", "OffloadingAborted", "excluded"},
    ),
    "has failed": (failed, {"Over", "over"}),
}


def words(status: Status) -> Iterator[str]:
    """Yield the reasons and messages of a status and of its conditions, but for those of schedulers and users."""
    for one in (status, *(each for each in status.get("conditions") or [] if each["type"] in OWN)):
        yield from (one[key] for key in ("reason", "message") if one.get(key))


class BuilderTests(SynchronousTestCase):
    """Each builder of a status, after any others."""

    @given(st.lists(st.sampled_from(sorted(BUILDERS)), min_size=1, max_size=4))
    def test_no_word_of_another_is_left(self, names: list[str]) -> None:
        """A builder sets or removes all that any other one says, and what it writes it does not change again."""
        status = NONE
        for name in names:
            builder, own = BUILDERS[name]
            status = builder(status)
            self.assertEqual(set(words(status)) - own, set(), names)
            self.assertEqual(builder(status), status, names)
        is_said = any(one["type"] == "liqo.io/Offloaded" for one in status["conditions"])
        self.assertEqual(is_said, names[-1] in ("is refused", "is not offloaded"))
