"""Names that both sides must compute alike."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.ids import is_dns_label, parse_cluster_id, parse_fingerprint
from liqod.model.names import remote_namespace
from liqod.model.objects.meta import Condition, ObjectMeta, set_condition, to_dict

LABELS = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
UUID = "0b4f7a1e-9d55-4d0e-8f5e-3c0c8f1f2a11"


class RemoteNamespaceTests(SynchronousTestCase):
    """The name of the remote namespace."""

    def test_plain(self) -> None:
        """A short name is the local one and the home cluster's ID."""
        self.assertEqual(remote_namespace("shop", UUID), f"shop-{UUID}")

    @given(LABELS, LABELS)
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_always_a_label(self, local: str, home: str) -> None:
        """Whatever the parts, the result is a valid namespace name."""
        self.assertTrue(is_dns_label(remote_namespace(local, home)))

    @given(LABELS, LABELS)
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_injective(self, one: str, two: str) -> None:
        """Two local namespaces never share a remote one, however long they are."""
        if one != two:
            self.assertNotEqual(remote_namespace(one, UUID), remote_namespace(two, UUID))


class IdentifierTests(SynchronousTestCase):
    """Parsing what a person or a peer wrote."""

    def test_cluster_id(self) -> None:
        """Anything but a DNS label is refused, and the message does not repeat a huge text whole."""
        self.assertEqual(parse_cluster_id(UUID), UUID)
        for text in ["", "A", "a_b", "-a", "a-", "a" * 64, "x" * 100_000, "a\n"]:
            error = self.assertRaises(ValueError, parse_cluster_id, text)
            self.assertLess(len(str(error)), 300)

    def test_fingerprint(self) -> None:
        """A fingerprint is sha256: and 64 hex digits, nothing else."""
        good = "sha256:" + "0a" * 32
        self.assertEqual(parse_fingerprint(good), good)
        for text in ["", good.upper(), good[:-1], good + "0", "md5:" + "0a" * 32]:
            self.assertRaises(ValueError, parse_fingerprint, text)


class ConditionTests(SynchronousTestCase):
    """Lists of conditions."""

    def test_transition_only_on_change(self) -> None:
        """The transition time moves only when the status does, and an equal condition changes nothing."""
        first = set_condition([], Condition(type="Ready", status="False", reason="A"), "t1")
        same = set_condition(first, Condition(type="Ready", status="False", reason="A"), "t2")
        self.assertEqual(first, same)
        reworded = set_condition(first, Condition(type="Ready", status="False", reason="B"), "t2")
        self.assertEqual(reworded[0].last_transition_time, "t1")
        turned = set_condition(first, Condition(type="Ready", status="True"), "t3")
        self.assertEqual(turned[0].last_transition_time, "t3")

    def test_plain_values(self) -> None:
        """A view becomes camelCase JSON without its defaults."""
        self.assertEqual(to_dict(ObjectMeta(name="a", resource_version="7")), {"name": "a", "resourceVersion": "7"})
