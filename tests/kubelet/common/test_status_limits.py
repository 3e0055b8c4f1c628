"""What is kept of a status that no kubelet would write."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.cache.watch_decoder import Decoder, Unreadable
from liqod.kubelet.common.status_limits import LONGEST, TEXT, limited
from liqod.kubelet.common.views import RemotePod

FIELDS = ["phase", "message", "conditions", "podIPs", "containerStatuses", "initContainerStatuses", "type", "ip"]
FIELDS += ["name", "state", "running", "terminated", "restartCount", "exitCode", "ready"]


def seen(status: Any) -> dict[str, Any]:
    pod = Decoder(RemotePod).object(json.dumps({"metadata": {"name": "a"}, "status": status}).encode())
    assert not isinstance(pod, Unreadable)
    found: dict[str, Any] = json.loads(bytes(pod.status))
    return found


class StatusLimitsTests(SynchronousTestCase):
    def test_ordinary_statuses(self) -> None:
        """A status of ordinary length is kept as it is, with what nobody here knows of."""
        status = {"phase": "Running", "message": "x" * 12_000, "new": [1, {"a": "b"}]}
        self.assertEqual(seen(status), status)

    def test_what_is_kept(self) -> None:
        """Of a long one phase, conditions, addresses and containers are kept, so that the pod is reported as it is."""
        container = {"name": "main", "ready": True, "restartCount": 3, "state": {"running": {"startedAt": "t"}}}
        short = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "podIPs": [{"ip": "10.0.0.7"}],
            "containerStatuses": [container],
        }
        self.assertEqual(seen({**short, "volumes": ["x" * LONGEST]}), short)
        long = {**container, "lastState": {"terminated": {"message": "y" * LONGEST}}}
        self.assertEqual(seen({**short, "containerStatuses": [long]}), short)

    def test_long_texts(self) -> None:
        """Texts are cut; what is left is text, in whatever script it was written."""
        for letter in "x\u00e4\U0001f600":
            found = seen({"message": letter * LONGEST})["message"]
            self.assertEqual((set(found), len(found.encode())), ({letter}, TEXT))
        self.assertEqual(limited({"message": "\ud800\x1b\n" * LONGEST})["message"].strip(), "")

    def test_many_of_everything(self) -> None:
        """However many entries there are, and whatever is written in them, what is kept is short."""
        for letter in ("\x00", '"', "\U0001f600"):
            text = letter * 1000
            said: dict[str, Any] = dict.fromkeys(("name", "image", "imageID", "type", "reason", "message", "ip"), text)
            said["state"] = {kind: dict(said) for kind in ("waiting", "running", "terminated")}
            keys = ("conditions", "podIPs", "containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
            self.assertLess(len(msgspec.json.encode(limited(dict.fromkeys(keys, [said] * 10_000)))), LONGEST)

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5),
            max_leaves=30,
        )
    )
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_any_status(self, value: Any) -> None:
        """Whatever a lender writes is made short without an error, and a second time changes nothing."""
        once = limited(value if isinstance(value, dict) else {"conditions": value, "containerStatuses": value})
        self.assertEqual(limited(once), once)
        json.dumps(once)
