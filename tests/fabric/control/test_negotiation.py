"""Tests of liqod.fabric.control.negotiation: what a peer is assigned, and what came of the exchange with it."""

from __future__ import annotations

import attrs
import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.fabric.control.agreed import AgreedPeer
from liqod.fabric.control.agreement.agreement import allocation
from liqod.fabric.control.negotiation import agreed_first, assigned_to_others, assignment, judge, keys_of_others
from liqod.model.ids import ClusterID
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.network import (
    NO_TUNNEL_HERE,
    NetworkConfig,
    Subnets,
    TunnelEndpoint,
    TunnelEndpointSpec,
    TunnelSide,
)
from tests.fabric.control.test_agreement import KEY, NO_ENTRIES, OTHER_KEY, OWN_KEY, config, own, side

ACK = Subnets(pod_cidrs=["10.80.0.0/16"], external_cidr="10.81.0.0/20")
REMAP = allocation(own(), config("b", side()), [], [])


def in_phase(phase: str, name: str, remap: Subnets = NO_ENTRIES) -> NetworkConfig:
    one = config(name, side(), remap)
    return msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, phase=phase))


class JudgeTests(SynchronousTestCase):
    """What came of an exchange."""

    def test_the_table(self) -> None:
        """Each record has one verdict: what is missing is awaited, what is wrong is refused, else there is a link."""
        without = Subnets(reason=NO_TUNNEL_HERE)
        full = Subnets(reason="NoSpace", message="full")
        rows: list[tuple[str, NetworkConfig, tuple[str, ...], str, str]] = [
            ("nothing sent", config("b", TunnelSide()), (), "Pending", "WaitingForPeer"),
            ("not acknowledged", config("b", side(), REMAP), (), "Pending", "WaitingForPeer"),
            ("both agree", config("b", side(), REMAP, ACK), (), "Agreed", "Agreed"),
            ("no tunnel there", config("b", side(), REMAP, without), (), "Refused", "PeerHasNone"),
            ("no room here", config("b", side(), full), (), "Refused", "NoSpace"),
            ("another's key", config("b", side(), REMAP, ACK), (KEY,), "Refused", "KeyInUse"),
            ("our key", config("b", side(public_key=OWN_KEY), REMAP, ACK), (), "Refused", "KeyInUse"),
        ]
        for name, record, other_keys, phase, reason in rows:
            verdict = judge(own(), record, others=(), other_keys=other_keys)
            self.assertEqual((verdict.phase, verdict.reason), (phase, reason), name)
            self.assertEqual(verdict.agreed is not None, phase == "Agreed", name)
            self.assertTrue(verdict.message, name)

    def test_a_link(self) -> None:
        """The link is the one to that peer, by what it is assigned on record."""
        verdict = judge(own(), config("b", side(), REMAP, ACK), others=(), other_keys=())
        assert verdict.agreed is not None
        _, link = verdict.agreed
        seen = [str(one) for one in link.remote[:1]]
        self.assertEqual((link.peer, link.public_key, seen), ("b", KEY, REMAP.pod_cidrs))


class AssignmentTests(SynchronousTestCase):
    """What a peer is assigned."""

    def test_keys_that_the_tunnel_accepts(self) -> None:
        """The peer is notified which of its keys is known here, once the tunnel accepts that."""
        record = config("b", side(next_key=OTHER_KEY))
        cases: list[tuple[tuple[str, ...], str]] = [((), ""), ((OTHER_KEY,), OTHER_KEY), ((KEY,), "")]
        for accepted, known in cases:
            found = assignment(own(), record, others=(), avoided=(), accepted_keys=accepted)
            self.assertEqual((found.pod_cidrs, found.known_key), (REMAP.pod_cidrs, known))

    def test_others_keep_theirs(self) -> None:
        """What other peers are assigned is not given away; those with whom all was agreed come first."""
        everyone = [in_phase("Pending", "a"), in_phase("Agreed", "c", REMAP), in_phase("Agreed", "b")]
        self.assertEqual([one.metadata.name for one in sorted(everyone, key=agreed_first)], ["b", "c", "a"])
        others = assigned_to_others(everyone[0], everyone)
        self.assertEqual(others, [REMAP, NO_ENTRIES])
        found = assignment(own(), everyone[0], others=others, avoided=(), accepted_keys=())
        self.assertNotEqual(found.pod_cidrs, REMAP.pod_cidrs)


class KeysOfOthersTests(SynchronousTestCase):
    """The keys that a peer must not name."""

    def test_who_has_a_key(self) -> None:
        """A key is that of the peer whose tunnel has it on record, or which named it first in this pass."""
        record = TunnelEndpoint(
            metadata=ObjectMeta(name="c"), spec=TunnelEndpointSpec(public_key="recorded", next_key="")
        )
        verdict = judge(own(), config("d", side(next_key=OTHER_KEY), REMAP, ACK), others=(), other_keys=())
        assert verdict.agreed is not None
        before = {ClusterID("d"): AgreedPeer(*verdict.agreed)}
        agreed, pending = in_phase("Agreed", "c"), in_phase("Pending", "c")
        rows: list[tuple[str, list[NetworkConfig], dict[ClusterID, AgreedPeer], set[str]]] = [
            ("b", [agreed], before, {"recorded", KEY, OTHER_KEY}),
            ("b", [agreed], {}, {"recorded"}),
            ("b", [pending], {}, set()),
            ("c", [agreed], {}, set()),
        ]
        for name, everyone, passed, keys in rows:
            self.assertEqual(keys_of_others(config(name, side()), everyone, passed, [record]), keys)


class NextKeyTests(SynchronousTestCase):
    """The key that ours will be."""

    def test_it_is_refused(self) -> None:
        """A peer that names it first is refused."""
        ours = attrs.evolve(own(), next_key=KEY)
        verdict = judge(ours, config("b", side(), REMAP, ACK), others=(), other_keys=())
        self.assertEqual((verdict.phase, verdict.reason), ("Refused", "KeyInUse"))
