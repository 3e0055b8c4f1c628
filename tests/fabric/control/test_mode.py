"""Whether there is a tunnel, as ``mode = "auto"`` decides it: every row of the table, and two sides that exchange."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.fabric.control.agreement.mode import NEW, decide, first_decision, refusal
from liqod.model.objects.meta import Condition, ObjectMeta
from liqod.model.records.network import (
    NO_TUNNEL,
    TUNNEL,
    UNDECIDED,
    Decision,
    NetworkConfig,
    NetworkConfigSpec,
    NetworkConfigStatus,
    Subnets,
    TunnelSide,
)
from liqod.model.records.views import ForeignCluster, ForeignClusterSpec, ForeignClusterStatus
from liqod.model.timestamps import rfc3339

OPEN = Decision(mode=UNDECIDED)
SPOKEN = TunnelSide(pod_cidrs=["10.201.0.0/16"], public_key="key")
SEEN = Subnets(pod_cidrs=["10.64.0.0/16"])
NONE_THERE = Subnets(reason="NoTunnel", message="the program wg is missing: install the package wireguard-tools")
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def record(
    decision: Decision = OPEN,
    local: TunnelSide | None = None,
    remote: TunnelSide | None = None,
    ack: Subnets | None = None,
    *,
    silent: bool = False,
) -> NetworkConfig:
    """Return the record of a peer."""
    return NetworkConfig(
        metadata=ObjectMeta(name="milan"),
        spec=NetworkConfigSpec(cluster_id="milan", local=local or TunnelSide(), decision=decision),
        status=NetworkConfigStatus(remote=remote or TunnelSide(), ack=ack or Subnets(), silent=silent),
    )


class DecisionTests(SynchronousTestCase):
    """What is decided about one peer."""

    def test_table(self) -> None:
        """What each side can, and what is known of it, row by row."""
        for config, lacking, mode, reason in (
            (record(), "", UNDECIDED, ""),
            (record(local=SPOKEN), "", UNDECIDED, ""),
            (record(remote=SPOKEN), "", UNDECIDED, ""),
            (record(remote=SPOKEN, ack=SEEN), "", UNDECIDED, ""),
            (record(local=SPOKEN, remote=SPOKEN), "", UNDECIDED, ""),
            (record(local=SPOKEN, ack=SEEN), "", UNDECIDED, ""),
            (record(local=SPOKEN, remote=SPOKEN, ack=SEEN), "", TUNNEL, "BothCan"),
            (record(local=SPOKEN, remote=SPOKEN, ack=Subnets(reason="PoolExhausted")), "", TUNNEL, "BothCan"),
            (record(local=SPOKEN, remote=SPOKEN, ack=SEEN), "no wg", TUNNEL, "BothCan"),
            (record(), "no wg", NO_TUNNEL, "HostLacks"),
            (record(remote=SPOKEN), "no wg", NO_TUNNEL, "HostLacks"),
            (record(ack=NONE_THERE), "no wg", NO_TUNNEL, "HostLacks"),
            (record(ack=NONE_THERE), "", NO_TUNNEL, "PeerHasNone"),
            (record(local=SPOKEN, ack=NONE_THERE), "", NO_TUNNEL, "PeerHasNone"),
            (record(local=SPOKEN, remote=SPOKEN, ack=NONE_THERE), "", NO_TUNNEL, "PeerHasNone"),
            (record(local=SPOKEN, silent=True), "", NO_TUNNEL, "PeerSilent"),
            (record(local=SPOKEN, remote=SPOKEN, silent=True), "", NO_TUNNEL, "PeerSilent"),
            (record(local=SPOKEN, remote=SPOKEN, ack=SEEN, silent=True), "", TUNNEL, "BothCan"),
        ):
            found = decide(config, lacking)
            self.assertEqual((found.mode, found.reason), (mode, reason), config)

    @given(
        st.builds(
            record,
            st.sampled_from([Decision(), Decision(mode=TUNNEL), Decision(mode=NO_TUNNEL, reason="HostLacks")]),
            st.sampled_from([TunnelSide(), SPOKEN]),
            st.sampled_from([TunnelSide(), SPOKEN]),
            st.sampled_from([Subnets(), SEEN, NONE_THERE]),
            silent=st.booleans(),
        ),
        st.sampled_from(["", "no wg"]),
    )
    def test_what_was_decided_is_kept(self, config: NetworkConfig, lacking: str) -> None:
        """Whatever becomes known later, a decision stays, and so does a record from before there were any."""
        self.assertEqual(decide(config, lacking), config.spec.decision)

    @given(st.lists(st.sampled_from(["a", "b", "a hears", "b hears"]), max_size=20), st.booleans(), st.booleans())
    def test_both_sides_decide_alike(self, order: list[str], a_lacks: bool, b_lacks: bool) -> None:
        """In whichever order they look and hear of each other: in the end both have a tunnel, or neither."""
        sides = {"a": record(), "b": record()}
        lacks = {"a": "no wg" if a_lacks else "", "b": "no nft" if b_lacks else ""}

        def look(name: str) -> None:
            config = sides[name]
            decision = decide(config, lacks[name])
            spec = msgspec.structs.replace(config.spec, decision=decision)
            if decision.mode == NO_TUNNEL:
                spec = msgspec.structs.replace(spec, local=TunnelSide(), remap=refusal(decision))
            else:
                remap = SEEN if config.status.remote != TunnelSide() else Subnets()
                spec = msgspec.structs.replace(spec, local=SPOKEN, remap=remap)
            sides[name] = msgspec.structs.replace(config, spec=spec)

        def hear(name: str) -> None:
            said = sides["b" if name == "a" else "a"].spec
            status = sides[name].status
            if said.local != TunnelSide():
                status = msgspec.structs.replace(status, remote=said.local)
            if said.remap != Subnets():
                status = msgspec.structs.replace(status, ack=said.remap)
            sides[name] = msgspec.structs.replace(sides[name], status=status)

        for what in [*order, *(["a", "b", "a hears", "b hears"] * 4)]:
            (hear if "hears" in what else look)(what[0])
        wanted = NO_TUNNEL if a_lacks or b_lacks else TUNNEL
        self.assertEqual(
            {name: config.spec.decision.mode for name, config in sides.items()}, {"a": wanted, "b": wanted}
        )

    def test_the_reason_is_sent(self) -> None:
        """What one host lacks, and what to do, is the reason at the other one as well."""
        here = decide(record(), NONE_THERE.message)
        there = decide(record(local=SPOKEN, ack=refusal(here)), "")
        for decision in (here, there):
            self.assertIn(NONE_THERE.message, decision.message)


class FirstDecisionTests(SynchronousTestCase):
    """What the record of a peer says when it is made."""

    def peer(self, *since: timedelta, status: str = "True") -> ForeignCluster:
        """Return a peer whose directions are as they are for so long."""
        conditions = [
            Condition(type=kind, status=status, last_transition_time=rfc3339(NOW - one))
            for kind, one in zip(("Accepted", "Lending"), since, strict=False)
        ]
        return ForeignCluster(
            metadata=ObjectMeta(name="milan"),
            spec=ForeignClusterSpec(cluster_id="milan"),
            status=ForeignClusterStatus(conditions=conditions),
        )

    def test_table(self) -> None:
        """A peering that was there before anybody decided stays without; a new one is decided; settings decide none."""
        new, old = NEW / 2, NEW * 2
        for setting, since, mode in (
            ("auto", (new,), UNDECIDED),
            ("auto", (new, new), UNDECIDED),
            ("auto", (old,), NO_TUNNEL),
            ("auto", (new, old), NO_TUNNEL),
            ("auto", (), UNDECIDED),
            ("wireguard", (old,), ""),
            ("wireguard", (new,), ""),
        ):
            self.assertEqual(first_decision(setting, self.peer(*since), NOW).mode, mode, (setting, since))
        self.assertEqual(first_decision("auto", self.peer(old, status="False"), NOW).mode, UNDECIDED)
        self.assertEqual(first_decision("auto", self.peer(old), NOW).reason, "KeptFromBefore")

    def test_an_offer_that_expired(self) -> None:
        """A lender that was away while this mode was set comes back to the peering that there was."""
        expired = Condition(type="Accepted", status="False", reason="OfferExpired", last_transition_time=rfc3339(NOW))
        peer = self.peer()
        peer = msgspec.structs.replace(peer, status=ForeignClusterStatus(conditions=[expired]))
        self.assertEqual(first_decision("auto", peer, NOW).reason, "KeptFromBefore")
