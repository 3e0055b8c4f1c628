"""The acceptance loop: decides about all Advertisement records together, one run at a time.

``acceptance`` computes the decisions from the records alone; a write that the watch has not shown yet counts. A peer
whose record and ruling are unchanged is skipped, so that a run costs what changed, not what exists. A status is written
when the decision changed, or when its ``receivedAt`` is more than half a TTL old: after a restart only that date
distinguishes a live offer from an expired one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Final, Protocol

import attrs
import msgspec

from liqod.acceptance.pipeline import Ruling, rule_all
from liqod.acceptance.stages import AcceptanceRules, OfferCase
from liqod.config.schema import AcceptanceSettings
from liqod.flow.clocks import reactor_time, wall_clock
from liqod.flow.controller import After, Controller, Source, always
from liqod.kube.errors import KubeError
from liqod.kube.resources import ADVERTISEMENTS
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.kube.writing.refusals import RefusedWrite, Retry
from liqod.kube.writing.status_writer import StatusWriter
from liqod.model.ids import ClusterID
from liqod.model.objects import label_selector, quantity
from liqod.model.objects.meta import MAX_MESSAGE, Condition, find_condition, set_condition
from liqod.model.objects.quantity import Resources
from liqod.model.records import hours
from liqod.model.records.views import Advertisement, AdvertisementSpec, AdvertisementStatus
from liqod.model.timestamps import parse_rfc3339, rfc3339
from liqod.peering.borrowing.advertisements import AGAIN, PROBLEM, WITHDRAWN
from liqod.peering.changes import Queue, mapped
from liqod.peering.controller import PeeringContext
from liqod.peering.records.directions import DirectionPolicy
from liqod.peering.records.foreignclusters import ForeignClusters

ALL: Final = "all"
RETURN: Final = 60.0
"""Seconds after the daemon's start during which no offer expires: peers need time to reconnect."""
REFUSED_RETRY: Final = 5.0
"""Seconds until a status that the API server refused is written again; a conflict (409) is retried at once."""
NOTED_AGAIN: Final = 10.0
"""Seconds after which the time of receipt is noted again, where the peer's daemon was started since."""
SPACING: Final = 0.25
"""Minimum seconds between runs, unless an offer has no verdict yet: many changed offers are handled in one run."""


@attrs.frozen
class _Demand:
    """The parsed quantities of an offer, for one version of its record."""

    version: str
    resources: Resources
    prices: Resources


@attrs.define
class _Offer:
    """What is known of one record: the ruling and the version that it is about, what was parsed, when it was received.

    ``noted`` is the date on record, and what the monotonic clock showed then.
    """

    decided: tuple[str, Ruling] | None = None
    demand: _Demand | None = None
    noted: tuple[str, float] | None = None


class DecisionSubscriber(Protocol):
    """Subscribes to decisions: ``routing.decision_router.DecisionRouter``."""

    def offer_decided(self, peer: ClusterID, ruling: Ruling) -> None:
        """A peer's offer was decided, once more or for the first time, and the ruling is on record."""


class AcceptanceLoop(Controller[str]):
    """Decides about offers, and notifies the subscriber of each peer whose offer was decided."""

    name = "acceptance"

    def __init__(
        self,
        context: PeeringContext,
        *,
        records: ForeignClusters,
        offers: MutationCache[Advertisement],
        rules: AcceptanceRules,
        directions: DirectionPolicy,
        subscriber: DecisionSubscriber,
    ) -> None:
        clock = context.clock
        super().__init__(clock, metrics=context.metrics)
        self._rules = rules
        self._clock = clock
        self._wall = wall_clock(clock)
        self._peers = context.peers
        self._changes = context.changes
        self._records = records
        self._offers = offers
        self._directions = directions
        self._subscriber = subscriber
        self._started = clock.seconds()
        self._ran = float("-inf")
        self._touched: set[ClusterID] = set()
        self._writer = StatusWriter(context.client, ADVERTISEMENTS, Advertisement, offers)
        self._tracked: dict[ClusterID, _Offer] = {}

    def sources(self) -> Iterable[Source[str]]:
        """Return a run at the start, and one for each peer whose offer must be decided again."""
        yield always(ALL)
        yield mapped(self._changes.of(Queue.DECISION), self._offer_changed)

    def _offer_changed(self, peer: ClusterID) -> Iterable[str]:
        self._touched.add(peer)
        known = self._tracked.get(peer)
        if known is None or known.decided is None:
            return (ALL,)
        self.enqueue(ALL, self._ran + SPACING - self._clock.seconds())
        return ()

    async def reconcile(self, _: str) -> After | None:
        """Decide about every offer; returns when the first of them expires."""
        now = self._ran = self._clock.seconds()
        touched, self._touched = self._touched, set()
        found = {ClusterID(record.spec.cluster_id): record for record in self._offers.items()}
        self._tracked = {peer: self._tracked.get(peer) or _Offer() for peer in found}
        ends = {peer: self._expires(peer, record) for peer, record in found.items()}
        cases = [self._case(peer, record, ends[peer] <= now) for peer, record in found.items()]
        trouble: KubeError | None = None
        again: list[float] = []
        for peer, ruling in rule_all(cases, self._rules).items():
            record = found[peer]
            if peer not in touched and self._is_unchanged(peer, record, ruling):
                continue
            try:
                outcome = await self._writer.write(record, self._status(peer, record, ruling))
            except KubeError as error:
                self._touched.add(peer)
                trouble = error
                continue
            if isinstance(outcome, RefusedWrite):
                self._touched.add(peer)
                again.append(AGAIN if outcome.retry is Retry.AT_ONCE else max(REFUSED_RETRY, outcome.retry_after))
                continue
            self._subscriber.offer_decided(peer, ruling)
            self._tracked[peer].decided = outcome.object.metadata.resource_version, ruling
        if trouble is not None:
            raise trouble
        change = hours.until_change(self._rules.windows, self._wall().timestamp())
        again += [change] if change is not None else []
        coming = again + [max(AGAIN, end - now) for end in ends.values() if end > now]
        return After(min(coming)) if coming else None

    def _is_unchanged(self, peer: ClusterID, record: Advertisement, ruling: Ruling) -> bool:
        """Return whether record, ruling and time of receipt of an offer are unchanged."""
        noted = record.status.received_at
        return (
            self._tracked[peer].decided == (record.metadata.resource_version, ruling)
            and self._note(noted, self._last_received(peer, record), record.spec) == noted
        )

    def _demand(self, peer: ClusterID, record: Advertisement) -> _Demand:
        known = self._tracked[peer]
        version = record.metadata.resource_version
        if known.demand is None or known.demand.version != version:
            offer = record.spec.offer
            known.demand = _Demand(version, _quantities(offer.resources), _quantities(offer.prices))
        return known.demand

    def _case(self, peer: ClusterID, record: Advertisement, expired: bool) -> OfferCase:
        cluster = self._records.get(peer)
        demand, seated = self._demand(peer, record), is_seated(record)
        annotations = record.metadata.annotations
        return OfferCase(
            peer=peer,
            first_seen=record.metadata.creation_timestamp or "",
            seated=seated,
            decision=record.spec.decision,
            enabled=self._directions.of(cluster).borrows,
            # A missing record is no evidence: an accepted offer stays accepted, and no new one is accepted.
            trusted=bool(cluster.spec.fingerprint) if cluster is not None else seated,
            problem=annotations.get(PROBLEM, ""),
            withdrawn=annotations.get(WITHDRAWN, ""),
            expired=expired,
            resources=demand.resources,
            prices=demand.prices,
            labels=record.spec.offer.labels,
            now=self._wall().timestamp(),
        )

    def _last_received(self, peer: ClusterID, record: Advertisement) -> float | None:
        connected = self._peers.get(peer)
        received = connected.received if connected is not None else None
        if received is not None:
            return received.at
        # Only after a restart: the record's date is converted to the monotonic clock once, so that a later step of the
        # wall clock does not move the expiry of an offer.
        noted = record.status.received_at
        known = self._tracked[peer]
        if known.noted is None or known.noted[0] != noted:
            date = parse_rfc3339(noted)
            if date is None:
                return None
            known.noted = noted, min(reactor_time(date, self._clock), self._clock.seconds())
        return known.noted[1]

    def _expires(self, peer: ClusterID, record: Advertisement) -> float:
        received = self._last_received(peer, record)
        ends = received + record.spec.time_to_live if received is not None else self._started
        return max(ends, self._started + RETURN)

    def _status(self, peer: ClusterID, record: Advertisement, ruling: Ruling) -> AdvertisementStatus:
        before = record.status
        reason, message = ruling.reason, ruling.message
        if ruling.phase == before.phase == "Accepted" and ruling.trace[-1:] == ("kept",):
            reason, message = before.reason, before.message  # keep why it was accepted, instead of that it still is
        now = rfc3339(self._wall())
        holds = "True" if ruling.seated else "False"
        accepted = Condition(type="Accepted", status=holds, reason=reason, message=message)
        return msgspec.structs.replace(
            before,
            phase=ruling.phase,
            reason=reason,
            message=message[:MAX_MESSAGE],
            received_at=self._note(before.received_at, self._last_received(peer, record), record.spec),
            conditions=set_condition(before.conditions, accepted, now),
        )

    def _note(self, noted: str, received: float | None, offer: AdvertisementSpec) -> str:
        if received is None:
            return noted
        date = self._wall() - timedelta(seconds=self._clock.seconds() - received)
        before = parse_rfc3339(noted)
        if before is None:
            return rfc3339(date)
        # A date in the future (the clock was set back since) would keep an offer for too long after a restart.
        is_near = abs((date - before).total_seconds()) < offer.time_to_live / 2
        # A daemon that began after that date sent the offer later: by the old date its clock would seem to be ahead.
        is_older = offer.epoch > before.timestamp() and (date - before).total_seconds() >= NOTED_AGAIN
        return noted if is_near and not is_older else rfc3339(date)


def rules_of(settings: AcceptanceSettings) -> AcceptanceRules:
    """Return the acceptance rules of the settings, which were validated when they were read."""
    return AcceptanceRules(
        policy=settings.policy,
        maximum=settings.maximum,
        quota=_quantities(settings.quota),
        ceilings=_quantities(settings.price_ceiling),
        selector=label_selector.parse(settings.selector),
        windows=tuple(hours.parse(text) for text in settings.hours),
    )


def _quantities(texts: Mapping[str, str]) -> Resources:
    """Return the quantities that can be parsed: users may have edited the record since it was validated."""
    found = {}
    for name, text in texts.items():
        try:
            found[name] = quantity.parse(text)
        except ValueError:
            continue
    return found


def is_seated(record: Advertisement) -> bool:
    """Return whether an offer was accepted before, and neither refused nor withdrawn since."""
    condition = find_condition(record.status.conditions, "Accepted")
    return condition.status == "True" if condition is not None else record.status.phase == "Accepted"
