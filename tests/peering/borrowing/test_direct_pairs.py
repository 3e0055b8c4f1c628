"""As a home: when pairs of lenders are asked, and what becomes of them."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.ids import ClusterID
from liqod.model.records.network import ASKED, BY_HOME, DIRECT, MAX_OTHERS, DirectState
from liqod.peering.borrowing.direct_pairs import (
    Lender,
    PairState,
    agreed,
    asked,
    ended,
    hindrance,
    objection,
    pair_of,
    pairs_with,
    recalled,
    shown,
)
from liqod.wire.events import DirectOffer

MILAN, TURIN, OSLO = map(ClusterID, ("milan", "turin", "oslo"))
PAIR = pair_of(TURIN, MILAN)
OFFER = DirectOffer("rome", ["192.0.2.7:5871"], "key", ["10.201.0.0/16"], 1400)
NOTHING = DirectOffer("rome", [], "", [], 0)
LENDER = Lender(lends=True, is_used=True, has_session=True, offer=OFFER)


class AskTests(SynchronousTestCase):
    """Which pairs are asked."""

    def test_what_ends_a_pair(self) -> None:
        """Its own will, a lender that lends no more, an offer that was taken back; not what is not known."""
        for other, willing, reason in (
            (LENDER, True, ""),
            (LENDER, False, "DirectOff"),
            (attrs.evolve(LENDER, lends=False), True, "NotALender"),
            (attrs.evolve(LENDER, offer=NOTHING), True, "NotOffered"),
            (attrs.evolve(LENDER, offer=None), True, ""),
            (attrs.evolve(LENDER, has_session=False), True, ""),
        ):
            for one, two in ((LENDER, other), (other, LENDER)):
                found = objection(one, two, willing=willing)
                self.assertEqual(found[0] if found else "", reason)

    def test_what_a_request_waits_for(self) -> None:
        """Pods that may be at both, both offers, both sessions."""
        for other, reason in (
            (LENDER, ""),
            (attrs.evolve(LENDER, is_used=False), "NoNamespaces"),
            (attrs.evolve(LENDER, offer=None), "NotOffered"),
            (attrs.evolve(LENDER, has_session=False), "NoSession"),
        ):
            found = hindrance(LENDER, other)
            self.assertEqual(found[0] if found else "", reason)

    def test_pairs(self) -> None:
        """Those of lenders that offered it, and those that are known; a bounded number."""
        lenders = {MILAN: LENDER, TURIN: LENDER, OSLO: attrs.evolve(LENDER, offer=NOTHING)}
        self.assertEqual(pairs_with(MILAN, lenders, ()), [PAIR])
        self.assertEqual(pairs_with(OSLO, lenders, ()), [])
        self.assertEqual(pairs_with(OSLO, lenders, [pair_of(MILAN, OSLO), PAIR]), [pair_of(MILAN, OSLO)])
        many = {ClusterID(f"lender-{number}"): LENDER for number in range(200)}
        self.assertEqual(len(pairs_with(ClusterID("lender-7"), many, ())), MAX_OTHERS)


class StateTests(SynchronousTestCase):
    """From one state to the next."""

    def test_direct_when_both_said_so(self) -> None:
        """One alone is not enough, nor one twice, nor an answer to another request, nor one of a third."""
        state = asked(PairState(), 5.0)
        for by, request in ((MILAN, 1), (MILAN, 1), (TURIN, 0), (OSLO, 1)):
            state = agreed(state, PAIR, by, request)
            self.assertEqual(state.phase, ASKED)
        self.assertEqual(agreed(state, PAIR, TURIN, 1).phase, DIRECT)

    def test_back_to_the_way_by_home(self) -> None:
        """Failures are counted until it is direct, and later answers to that request count for nothing."""
        state = ended(asked(PairState(), 0.0), ("TunnelDown", "no packets"), not_before=30.0)
        self.assertEqual((state.phase, state.failures, state.reason), (BY_HOME, 1, "TunnelDown"))
        for by in PAIR:
            state = agreed(state, PAIR, by, state.request)
        self.assertEqual(state.phase, BY_HOME)
        state = asked(state, 40.0)
        for by in PAIR:
            state = agreed(state, PAIR, by, state.request)
        self.assertEqual((state.phase, state.failures), (DIRECT, 0))

    def test_what_is_on_record(self) -> None:
        """Each lender's record names the other one; a restart takes over what was direct, and asks for the rest."""
        state = PairState(phase=DIRECT, reason="BothAgreed", message="x" * 5000)
        for lender, other in (PAIR, PAIR[::-1]):
            (record,) = shown(lender, {PAIR: state})
            self.assertEqual((record.peer, record.phase, len(record.message)), (other, DIRECT, 1024))
            self.assertEqual(recalled(record).phase, DIRECT)
        self.assertEqual(recalled(DirectState(peer=MILAN, phase=ASKED)), PairState())
        ended_before = DirectState(peer=MILAN, phase=BY_HOME, reason="TunnelDown", message="no handshake")
        self.assertEqual(shown(TURIN, {PAIR: recalled(ended_before)}), [ended_before])

    @given(st.lists(st.sampled_from(["ask", "milan", "turin", "stale", "end"]), max_size=12))
    def test_any_order(self, steps: list[str]) -> None:
        """It is direct only while both agreed to the newest request, and nobody ended it since."""
        state, said = PairState(), set[str]()
        for step in steps:
            if step == "ask" and state.phase == BY_HOME:
                state, said = asked(state, 0.0), set()
            elif step in PAIR:
                state = agreed(state, PAIR, ClusterID(step), state.request)
                said.add(step)
            elif step == "stale":
                state = agreed(state, PAIR, MILAN, state.request - 1)
            elif step == "end" and state.is_open:
                state, said = ended(state, ("Ended", ""), not_before=0.0), set()
            self.assertFalse(state.phase == DIRECT and said != set(PAIR))
