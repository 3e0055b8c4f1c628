"""The lending direction as a value: what an offer, a verdict, a grant and a withdrawal leave of one another."""

from __future__ import annotations

from typing import Any, cast

from twisted.trial.unittest import SynchronousTestCase

from liqod.model.records.views import Lent, LentSlice
from liqod.peering.session.lending import Lending

OFFERED = Lending().offered({"cpu": "4"}, 7, 1)
ACCEPTED = OFFERED.answered("Accepted", "ok").granted("liqo-tenant-rome")
ONE, TWO = cast(Any, object()), cast(Any, object())


class LendingTests(SynchronousTestCase):
    """Each step keeps what it does not concern."""

    def test_a_renewed_offer_keeps_verdict_and_rights(self) -> None:
        """Only the amount and the number change."""
        self.assertEqual(
            ACCEPTED.offered({"cpu": "5"}, 7, 2).lent,
            Lent(
                resources={"cpu": "5"},
                epoch=7,
                seq=2,
                verdict="Accepted",
                reason="ok",
                tenant_namespace="liqo-tenant-rome",
            ),
        )

    def test_an_offer_after_a_withdrawal_has_no_verdict(self) -> None:
        """The peer must accept it again; the rights that were not revoked yet are not forgotten."""
        again = ACCEPTED.retracted("PeeringDisabled").offered({"cpu": "5"}, 7, 3)
        self.assertEqual((again.verdict, again.namespace), ("", "liqo-tenant-rome"))

    def test_a_withdrawal_offers_nothing_and_keeps_the_rights_until_they_are_revoked(self) -> None:
        """What is granted must be revoked by somebody who knows of it."""
        withdrawn = ACCEPTED.retracted("Unpeered")
        assert withdrawn.lent is not None
        self.assertEqual((withdrawn.lent.resources, withdrawn.verdict), ({}, "Withdrawn"))
        self.assertEqual(withdrawn.namespace, "liqo-tenant-rome")
        self.assertEqual(withdrawn.revoked().namespace, "")

    def test_without_an_offer_there_is_nothing_to_answer_grant_or_withdraw(self) -> None:
        """A verdict that arrives when the record is gone does not make an offer."""
        nothing = Lending()
        for after in (
            nothing.answered("Accepted", ""),
            nothing.granted("liqo-tenant-rome"),
            nothing.retracted("Unpeered"),
            nothing.revoked(),
        ):
            self.assertEqual(after, nothing)

    def test_slices_are_a_part_of_what_is_lent(self) -> None:
        """They stay with a renewed offer and go with one that is refused or withdrawn."""
        slices = [LentSlice(name="gpu", resources={"cpu": "2"})]
        sliced = ACCEPTED.sliced(slices)
        self.assertEqual(sliced.slices, slices)
        self.assertEqual(sliced.offered({"cpu": "5"}, 7, 2).slices, slices)
        self.assertEqual(sliced.answered("Accepted", "").slices, slices)
        for after in (sliced.answered("Refused", "RefusedByUser"), sliced.retracted("Unpeered")):
            self.assertEqual(list(after.slices), [])
        self.assertEqual(list(Lending().sliced(slices).slices), [])

    def test_an_acknowledgement_counts_in_the_session_of_the_withdrawal_only(self) -> None:
        """One that another session brings, or that nobody asked for, changes nothing."""
        sent = ACCEPTED.withdrawal_sent(ONE, "Unpeered")
        self.assertIs(sent.withdrawal_acknowledged(TWO), sent)
        self.assertFalse(ACCEPTED.withdrawal_acknowledged(ONE).acknowledged)
        self.assertTrue(sent.withdrawal_acknowledged(ONE).acknowledged)

    def test_a_withdrawal_is_repeated_in_each_session_until_it_is_acknowledged(self) -> None:
        """And for another reason in any case: the end of the peering is more than a pause."""
        sent = ACCEPTED.withdrawal_sent(ONE, "PeeringDisabled")
        done = sent.withdrawal_acknowledged(ONE)
        for lending, session, reason, expected in (
            (ACCEPTED, ONE, "PeeringDisabled", False),
            (sent, ONE, "PeeringDisabled", True),
            (sent, TWO, "PeeringDisabled", False),
            (done, TWO, "PeeringDisabled", True),
            (done, TWO, "Unpeered", False),
        ):
            self.assertEqual(lending.is_withdrawn(session, reason), expected)
