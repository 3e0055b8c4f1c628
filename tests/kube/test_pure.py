"""Tests of liqod.kube's paths, errors, bodies and store."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube import errors, requests
from liqod.kube.cache.store import Delta, Store
from liqod.kube.resources import FOREIGNCLUSTERS, NODES, PODS, SHADOWPODS
from liqod.model.ids import Key
from liqod.model.objects.meta import Object, ObjectMeta
from liqod.model.records.views import ShadowPod
from tests.kube.cases import status


class PathTests(SynchronousTestCase):
    """URLs of the API."""

    def test_paths_of_kinds(self) -> None:
        """Core kinds are under /api, others under /apis; a namespace comes before the plural."""
        self.assertEqual(requests.collection(PODS), "/api/v1/pods")
        self.assertEqual(requests.item(PODS, "ns", "p", "log"), "/api/v1/namespaces/ns/pods/p/log")
        self.assertEqual(
            requests.item(FOREIGNCLUSTERS, "", "c2"), "/apis/discovery.liqo.io/v1alpha1/foreignclusters/c2"
        )
        self.assertEqual(requests.query("/x", {"a": "b c", "n": ""}), "/x?a=b+c")

    def test_a_namespace_for_a_cluster_scoped_kind_is_refused(self) -> None:
        """Asking for nodes in a namespace is a mistake, not a request."""
        self.assertRaises(ValueError, requests.item, NODES, "ns", "n")

    @given(st.text(min_size=1))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_no_name_reaches_another_path(self, name: str) -> None:
        """Whatever a name holds, the path has exactly one segment for it."""
        if name in (".", ".."):
            self.assertRaises(ValueError, requests.item, PODS, "ns", name)
        else:
            path = requests.item(PODS, "ns", name)
            self.assertEqual(path.count("/"), 6)
            self.assertNotIn("?", path)


class ErrorTests(SynchronousTestCase):
    """From a Status to an exception."""

    def test_409_has_two_meanings(self) -> None:
        """An existing name and a lost race are distinguished by the reason."""
        exists = errors.from_status(409, json.dumps(status(409, "AlreadyExists")).encode())
        raced = errors.from_status(409, json.dumps(status(409, "Conflict")).encode())
        self.assertIs(type(exists), errors.AlreadyExists)
        self.assertIs(type(raced), errors.Conflict)

    def test_a_status_in_a_watch_brings_its_own_code(self) -> None:
        """With no HTTP code the Status's own decides."""
        self.assertIsInstance(errors.from_status(0, json.dumps(status(410, "Expired")).encode()), errors.Gone)

    def test_a_page_of_a_proxy_is_quoted(self) -> None:
        """A body that is no Status still gives the right type, with its text shortened."""
        error = errors.from_status(503, b"<html>" + b"x" * 1000)
        self.assertIsInstance(error, errors.ServerError)
        self.assertLess(len(str(error)), 300)

    @given(st.integers(0, 999), st.binary(max_size=60))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_any_answer_becomes_an_error(self, code: int, body: bytes) -> None:
        """No answer makes the translation fail."""
        self.assertIsInstance(errors.from_status(code, body), errors.ApiError)


class BodyTests(SynchronousTestCase):
    """What is sent."""

    def test_views_and_mappings_say_their_kind(self) -> None:
        """Views and mappings get apiVersion and kind; those that have them keep them; raw parts stay as they are."""
        shadow = ShadowPod(metadata=ObjectMeta(name="a", namespace="b"))
        sent = json.loads(requests.typed(SHADOWPODS, shadow))
        self.assertEqual(
            sent, {"apiVersion": "offloading.liqo.io/v1beta1", "kind": "ShadowPod", "metadata": shadow_meta()}
        )
        self.assertEqual(json.loads(requests.typed(NODES, {})), {"apiVersion": "v1", "kind": "Node"})
        self.assertEqual(json.loads(requests.typed(NODES, {"kind": "X"})), {"kind": "X"})
        self.assertEqual(requests.identity(shadow), ("b", "a"))
        self.assertEqual(requests.identity({"metadata": {"name": "n"}}), ("", "n"))


def shadow_meta() -> dict[str, str]:
    """Return the metadata that the shadow pod above has on the wire."""
    return {"name": "a", "namespace": "b"}


def item(name: str, version: int = 1, uid: str = "", **labels: str) -> Object:
    """Return an object for the store."""
    return Object(
        metadata=ObjectMeta(name=name, namespace="ns", uid=uid or name, resource_version=str(version), labels=labels)
    )


class StoreTests(SynchronousTestCase):
    """The cache and its deltas."""

    def test_the_same_version_is_no_change(self) -> None:
        """An object that comes again unchanged gives no delta; a newer one gives old and new."""
        store: Store[Object] = Store()
        one, two = item("a", 1), item("a", 2)
        self.assertEqual(store.put(one), Delta(Key("ns", "a"), None, one))
        self.assertIsNone(store.put(item("a", 1)))
        self.assertEqual(store.put(two), Delta(Key("ns", "a"), one, two))

    def test_replacing_reports_deletions_that_nobody_saw(self) -> None:
        """What is missing from a new list was deleted; what could not be read was not."""
        store: Store[Object] = Store()
        for name in "abc":
            store.put(item(name))
        deltas = store.replace({Key("ns", "a"): item("a")}, keep=[Key("ns", "b")])
        self.assertEqual([(delta.key.name, delta.new) for delta in deltas], [("c", None)])
        self.assertEqual({one.metadata.name for one in store}, {"a", "b"})

    def test_a_successor_of_the_same_name_is_a_deletion_and_an_addition(self) -> None:
        """Another UID under the same name is another object."""
        store: Store[Object] = Store()
        store.put(item("a", 1, uid="u1"))
        deltas = store.replace({Key("ns", "a"): item("a", 5, uid="u2")})
        self.assertEqual([(d.old is None, d.new is None) for d in deltas], [(False, True), (True, False)])

    @given(
        st.lists(
            st.tuples(st.sampled_from("abcd"), st.sampled_from(["put", "remove", "replace"]), st.sampled_from("xyz"))
        )
    )
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_indexes_agree_with_the_objects(self, steps: list[tuple[str, str, str]]) -> None:
        """After any steps an index holds exactly the objects that have its value."""
        store: Store[Object] = Store()
        store.add_index("label", lambda one: one.metadata.labels.values())
        for number, (name, step, value) in enumerate(steps):
            if step == "put":
                store.put(item(name, number, l=value))
            elif step == "remove":
                store.remove(Key("ns", name))
            else:
                store.replace({Key("ns", name): item(name, number, l=value)})
        for value in "xyz":
            expected = [one for one in store if one.metadata.labels["l"] == value]
            self.assertCountEqual(store.by_index("label", value), expected)
