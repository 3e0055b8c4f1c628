"""The one gate before deletions at a lender whose only reason is that an object is missing at home."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Final

from attrs import evolve, frozen
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.flow.observe import Latest
from liqod.flow.timer import Timer
from liqod.kubelet.namespaces.deletion_judge import WENT_BACK, HeldDeletions, Item, LossEvidence, Surge, judge
from liqod.model.ids import Key

SETTLE: Final = 2.0
"""Seconds without another missing object after which they are judged together."""
LONGEST: Final = 20.0
"""Seconds after which they are judged although more come in."""
RECENT: Final = 600.0
"""Seconds during which deletions without a question count for those that follow."""
REMEMBERED: Final = 50_000
"""Maximum number of watched deletions whose counterparts at the lender are not gone yet."""


@frozen
class _Missing:
    """An object to delete; ``contents``: what is deleted with it, by kind (a namespace's)."""

    contents: Mapping[str, int]


@frozen
class _Kind:
    """The objects of a kind: how many there are at the lender, and what is called for those that may be deleted."""

    total: Callable[[], int]
    enqueue: Callable[[Key], None]


class DeletionGate:
    """Judges together what is missing at home, and holds all of it when state of the home cluster may be lost.

    ``state`` has the present hold. Controllers ask ``may_delete`` in each step and are called with the key once the
    answer changed; they call ``forget`` for an object that need not be deleted, or is gone. ``evidence`` returns what
    speaks for lost state, ``accepted`` what of it somebody confirmed for this virtual node, also at an earlier gate of
    it: caches count it on. ``shown`` is the reason of the hold that an earlier process showed: that versions went back
    is seen once only, so it counts until somebody confirms.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        lender: str,
        evidence: Callable[[], LossEvidence],
        *,
        accepted: Latest[LossEvidence] | None = None,
        shown: str = "",
    ) -> None:
        self.state: Latest[HeldDeletions | None] = Latest(None)
        self._clock = clock
        self._lender = lender
        self._home_evidence = evidence
        self._kinds: dict[str, _Kind] = {}
        self._watched: dict[Item, str] = {}
        self._missing: dict[Item, _Missing] = {}
        self._allowed: set[Item] = set()
        self._recent: deque[tuple[float, Counter[str]]] = deque()
        self._confirmed = ""
        self._accepted = Latest(LossEvidence()) if accepted is None else accepted
        self._went_back_before = shown == WENT_BACK
        self._timer = Timer(clock)
        self._since: float | None = None

    def register(self, kind: str, total: Callable[[], int], enqueue: Callable[[Key], None]) -> None:
        """Count the objects of a kind at the lender by ``total``; call ``enqueue`` for those that may be deleted."""
        self._kinds[kind] = _Kind(total, enqueue)

    def close(self) -> None:
        """Cancel the timer."""
        self._timer.cancel()

    # What the controllers observe

    def observe_deletion(self, kind: str, key: Key, uid: str = "") -> None:
        """Record that an object was seen to be deleted at home; ``uid`` tells it from a successor of its name."""
        self._watched[kind, key] = uid
        if len(self._watched) > REMEMBERED:
            del self._watched[next(iter(self._watched))]

    def may_delete(self, kind: str, key: Key, uid: str = "", contents: Mapping[str, int] | None = None) -> bool:
        """Return whether the counterpart of an object that is missing at home may be deleted now."""
        item = (kind, key)
        if self.is_allowed(kind, key, uid):
            self._withdraw(item)
            return True
        if item not in self._missing:
            self._missing[item] = _Missing(dict(contents or {}))
            self._schedule()
        return False

    def is_allowed(self, kind: str, key: Key, uid: str = "") -> bool:
        """Return whether a deletion was seen or allowed already, without asking for it otherwise."""
        return (kind, key) in self._allowed or self._watched.get((kind, key)) == uid

    def forget(self, kind: str, key: Key, *, gone: bool = False) -> None:
        """Note that an object need not be deleted (any more); ``gone``: there is nothing at the lender."""
        item = (kind, key)
        self._allowed.discard(item)
        if gone:
            self._watched.pop(item, None)
        self._withdraw(item)

    def forget_namespace(self, kind: str, namespace: str) -> None:
        """Note that objects of a kind in a namespace need not be deleted one by one (any more)."""
        asked = {key for one, key in (*self._missing, *self._allowed) if one == kind and key.namespace == namespace}
        for key in asked:
            self.forget(kind, key)

    def confirm(self, observation: str) -> None:
        """Let what is held be deleted, if the observation is the present one; a later hold needs another one."""
        self._confirmed = observation
        held = self.state.value
        if held is not None and observation == held.observation:
            self._log.info("deletions at {peer} are confirmed: {detail}", peer=self._lender, detail=held.message)
            self._accepted.set(self._home_evidence())
            self._went_back_before = False
            self._open()

    def _withdraw(self, item: Item) -> None:
        if self._missing.pop(item, None) is not None and self.state.value is not None:
            self._schedule()

    # The judgement

    def _schedule(self) -> None:
        now = self._clock.seconds()
        if self._since is None:
            self._since = now
        self._timer.start(max(0.0, min(SETTLE, self._since + LONGEST - now)), self._judge)

    def _judge(self) -> None:
        self._since = None
        before = self.state.value
        held = judge(self._missing, self._surges(), self.evidence())
        if held is None:
            self._note_recent()
            self._open()
        elif held.observation == self._confirmed:
            self.state.set(held)
            self.confirm(self._confirmed)
        else:
            self.state.set(held)
            if before is None:
                self._log.warn("nothing is deleted at {peer}: {detail}", peer=self._lender, detail=held.message)

    def evidence(self) -> LossEvidence:
        """Return what speaks for lost state of the home cluster, without what somebody accepted."""
        found = self._home_evidence().beyond(self._accepted.value)
        return evolve(found, went_back=max(found.went_back, 1)) if self._went_back_before else found

    def _surges(self) -> dict[str, Surge]:
        while self._recent and self._clock.seconds() - self._recent[0][0] > RECENT:
            self._recent.popleft()
        missing, beyond = self._counts()
        recent: Counter[str] = Counter()
        for _, counts in self._recent:
            recent += counts
        return {
            kind: Surge(
                missing[kind] + recent[kind],
                max(missing[kind], self._total(kind) + beyond[kind]) + recent[kind],
            )
            for kind in missing
        }

    def _counts(self) -> tuple[Counter[str], Counter[str]]:
        """Return what is missing by kind, and the part of it that the totals do not have."""
        missing = Counter(kind for kind, _ in self._missing)
        beyond: Counter[str] = Counter()
        for one in self._missing.values():
            beyond.update(one.contents)
        return missing + beyond, beyond

    def _total(self, kind: str) -> int:
        known = self._kinds.get(kind)
        return 0 if known is None else known.total()

    def _note_recent(self) -> None:
        if self._missing:
            self._recent.append((self._clock.seconds(), self._counts()[0]))

    def _open(self) -> None:
        items, self._missing = list(self._missing), {}
        self._allowed.update(items)
        self.state.set(None)
        for kind, key in items:
            known = self._kinds.get(kind)
            if known is not None:
                known.enqueue(key)
