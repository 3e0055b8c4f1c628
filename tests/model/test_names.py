"""Names that both sides must compute alike."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.ids import is_dns_label, parse_cluster_id, parse_fingerprint
from liqod.model.names import MAX_NAME, remote_namespace
from liqod.model.objects.meta import MAX_MESSAGE, Condition, ObjectMeta, set_condition, to_dict

LABELS = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
UUID = "0b4f7a1e-9d55-4d0e-8f5e-3c0c8f1f2a11"
ALIKE = st.builds(
    lambda prefix, ends: sorted({f"{prefix}{end}"[:MAX_NAME].rstrip("-") for end in ends}),
    st.from_regex(r"[a-z0-9][-a-z0-9]{0,60}", fullmatch=True) | st.just("n" * 60),
    st.lists(st.from_regex(r"[-a-z0-9]{0,20}[a-z0-9]", fullmatch=True), min_size=2, max_size=8),
)
"""Several names that begin alike, most of them too long to be followed by the ID of a cluster."""


class RemoteNamespaceTests(SynchronousTestCase):
    """The name of the remote namespace."""

    def test_plain(self) -> None:
        """A short name is the local one and the home cluster's ID."""
        self.assertEqual(remote_namespace("shop", UUID), f"shop-{UUID}")

    @given(LABELS, LABELS)
    def test_always_a_label(self, local: str, home: str) -> None:
        """Whatever the parts, the result is a valid namespace name."""
        self.assertTrue(is_dns_label(remote_namespace(local, home)))

    @given(ALIKE, LABELS | st.just(UUID))
    def test_injective(self, locals_: list[str], home: str) -> None:
        """Two namespaces of one cluster never share a remote one, however long they are and however much alike."""
        self.assertEqual(len({remote_namespace(local, home) for local in locals_}), len(locals_))

    @given(LABELS, st.lists(LABELS, min_size=2, max_size=5, unique=True))
    def test_apart(self, local: str, homes: list[str]) -> None:
        """Namespaces of one name of several clusters never share a remote one."""
        self.assertEqual(len({remote_namespace(local, home) for home in homes}), len(homes))


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

    def test_long_messages(self) -> None:
        """A message is cut to what a record may have, and the same long one changes nothing."""
        long = Condition(type="Ready", status="False", reason="A", message="x" * (MAX_MESSAGE + 1))
        first = set_condition([], long, "t1")
        self.assertEqual(len(first[0].message), MAX_MESSAGE)
        self.assertEqual(set_condition(first, long, "t2"), first)

    def test_plain_values(self) -> None:
        """A view becomes camelCase JSON without its defaults."""
        self.assertEqual(to_dict(ObjectMeta(name="a", resource_version="7")), {"name": "a", "resourceVersion": "7"})
