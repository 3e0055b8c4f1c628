"""Whose pod it is that the lender has under a name."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.api.nodes import is_there
from liqod.kubelet.common.views import RemotePod
from liqod.model.names import HOME_POD_UID_ANNOTATION
from liqod.model.objects.meta import ObjectMeta


def namesake(uid: str) -> RemotePod:
    return RemotePod(metadata=ObjectMeta(name="web", annotations={HOME_POD_UID_ANNOTATION: uid} if uid else {}))


class IsThereTests(SynchronousTestCase):
    def test_the_table(self) -> None:
        """A pod of another home pod is not this one's; none is not either, unless it may merely be unknown."""
        table: list[tuple[RemotePod | None, bool, bool | None]] = [
            (namesake("u2"), True, True),
            (namesake("u2"), False, True),
            (namesake(""), True, True),
            (namesake("u1"), True, False),
            (namesake("u1"), False, None),
            (None, True, False),
            (None, False, None),
        ]
        for there, known, expected in table:
            self.assertIs(is_there("u2", there, known=known), expected, (there, known))
