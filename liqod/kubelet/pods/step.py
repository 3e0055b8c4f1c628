"""Decides the next step for one pod by its namespace, its objects, and whether the lender answers: a pure function."""

from __future__ import annotations

from attrs import frozen

from liqod.kubelet.common.context import Context
from liqod.kubelet.common.views import HomePod, RemotePod, Shadow, decoded, is_started
from liqod.kubelet.namespaces.state import (
    NamespacePending,
    NamespaceRefused,
    NamespaceState,
    NotOffloaded,
    Offloaded,
)
from liqod.kubelet.pods.decide import (
    Create,
    Decision,
    Keep,
    Patch,
    decide,
    decide_network_down,
    decide_not_offloaded,
    decide_refused,
    decide_unreachable,
    delete_home,
)
from liqod.kubelet.pods.forge import digest_in
from liqod.kubelet.pods.restarts import Tally
from liqod.model.objects.pod_completion import FINISHED


@frozen(kw_only=True)
class AtLender:
    """What the lender has of a pod in the namespace ``namespace``, as the caches show it.

    ``ended``: the last state of a remote pod that terminated and is gone. ``tally`` counts restarts (None: nothing to
    count). ``grace_ignored``: the lender did not apply the requested grace period in time. ``held``: the digest of an
    update that waits, because the lender refused it a moment ago.
    """

    namespace: str
    shadow: Shadow | None
    pod: RemotePod | None
    ended: RemotePod | None
    tally: Tally | None
    grace_ignored: bool
    held: str | None


@frozen(kw_only=True)
class LenderState:
    """How the lender answers. ``live``: what it shows of the namespace is up to date; ``silent``: it has not answered
    for long; ``rejected``: it does not accept the credential; ``usable``: packets reach its pods.
    """

    ok: bool
    live: bool
    silent: bool
    rejected: bool
    usable: bool


@frozen(kw_only=True)
class Observation:
    """All that the next step of a pod follows from.

    ``there`` is None where the namespace is not offloaded, or what the lender has of it is not known yet.
    ``given_up``: a deleted pod has waited long enough for a lender that does not answer. ``name_refused``: the lender
    refuses the name of the namespace, in which nothing of ours is then. ``prepared``: it is known what pods of the
    namespace find at the lender. ``now`` is RFC 3339.
    """

    home: HomePod | None
    namespace: NamespaceState
    there: AtLender | None
    lender: LenderState
    context: Context
    given_up: bool
    name_refused: bool
    prepared: bool
    now: str


@frozen
class Step:
    """What is to be done; ``postponed``: not all that is due can be done before the lender answers again."""

    decision: Decision
    postponed: bool = False


def next_step(observed: Observation) -> Step:
    """Return the next step for a pod."""
    step = _by_namespace(observed)
    home, lender = observed.home, observed.lender
    if home is None or not isinstance(observed.namespace, Offloaded):
        return step
    if not (lender.ok and lender.live):
        decision = decide_unreachable(home, step.decision, observed.now, silent=lender.silent, rejected=lender.rejected)
        return Step(decision, postponed=True)
    if not lender.usable:
        return Step(decide_network_down(home, step.decision, observed.now), step.postponed)
    return step


def is_of_stateful_set(home: HomePod) -> bool:
    """Return whether a pod is a StatefulSet's, of whose name no two may ever run."""
    return any(owner.controller and owner.kind == "StatefulSet" for owner in home.metadata.owner_references)


def _by_namespace(observed: Observation) -> Step:
    home, there, now = observed.home, observed.there, observed.now
    match observed.namespace:
        case NotOffloaded(message):
            return Step(decide_not_offloaded(home, message, now))
        case NamespaceRefused(reason, message):
            if home is not None and _may_still_run(home, name_refused=observed.name_refused):
                return Step(Keep("the lender may have granted the namespace before, and run the pod still"))
            return Step(decide_refused(home, reason, message, now))
        case NamespacePending(asked):
            if home is not None and home.metadata.deleting and (not asked or observed.given_up):
                return Step(delete_home(home, now))
            return Step(Keep("the namespace is not ready at the lender yet"))
        case Offloaded(_, draining):
            if there is None:
                if home is not None and observed.given_up:
                    return Step(delete_home(home, now))
                return Step(Keep("what the lender has of this namespace is not known yet"))
            step = _offloaded(observed, there)
            if draining and isinstance(step.decision, Create):
                return Step(Keep("the namespace is no longer offloaded: the pod is about to leave"), step.postponed)
            return step


def _offloaded(observed: Observation, there: AtLender) -> Step:
    """Return the step for a pod of an offloaded namespace. An update waits for the lender, its status does not."""
    decision = _decide(observed, there, there.held)
    if not isinstance(decision, Patch) or observed.home is None or not (update := digest_in(decision.patch)):
        return Step(decision)
    if observed.lender.ok and observed.prepared:
        return Step(decision)
    return Step(_decide(observed, there, update), postponed=True)


def _decide(observed: Observation, there: AtLender, held: str | None) -> Decision:
    return decide(
        observed.home,
        there.shadow,
        there.pod,
        context=observed.context,
        namespace=there.namespace,
        tally=there.tally,
        now=observed.now,
        lender_lost=observed.given_up,
        ended=there.ended,
        grace_ignored=there.grace_ignored,
        held=held,
    )


def _may_still_run(home: HomePod, *, name_refused: bool) -> bool:
    """Return whether a deleted pod of a StatefulSet may run in a namespace that the lender refuses now.

    It refuses, or does not answer, for what it granted before as well, but for a name that it never gives.
    """
    return (
        home.metadata.deleting
        and is_of_stateful_set(home)
        and is_started(home)
        and decoded(home.status).get("phase") not in FINISHED
        and not name_refused
    )
