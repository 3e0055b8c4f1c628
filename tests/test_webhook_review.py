"""Admission reviews: what is patched, what is let through as it is, and what is refused as malformed."""

from __future__ import annotations

import base64
import contextlib
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.webhook.placement import TOLERATION, mutations, tolerates
from liqod.webhook.review import MAX_BODY, Malformed, answer


def review(pod: Any, **more: Any) -> bytes:
    request = {
        "uid": "r-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "object": pod,
        **more,
    }
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


def patch_of(body: bytes) -> Any:
    response = msgspec.json.decode(answer(body))["response"]
    assert response["allowed"] is True and response["uid"] == "r-1"
    return msgspec.json.decode(base64.b64decode(response["patch"])) if "patch" in response else []


class Placement(SynchronousTestCase):
    def test_the_toleration_is_appended(self) -> None:
        """A pod gets the toleration behind its own; one without any gets the list."""
        self.assertEqual(
            patch_of(review({"spec": {}})), [{"op": "add", "path": "/spec/tolerations", "value": [TOLERATION]}]
        )
        user = [{"key": "gpu", "operator": "Exists"}]
        self.assertEqual(
            patch_of(review({"spec": {"tolerations": user}})),
            [{"op": "add", "path": "/spec/tolerations/-", "value": TOLERATION}],
        )

    def test_what_tolerates_already(self) -> None:
        """Tolerations that match the taint for good need no company; others do."""
        key = "virtual-node.liqo.io/not-allowed"
        table: list[tuple[dict[str, Any], bool]] = [
            ({"key": key, "operator": "Exists", "effect": "NoExecute"}, True),
            ({"key": key, "operator": "Exists"}, True),
            ({"operator": "Exists"}, True),
            ({"key": key, "value": "true"}, True),
            ({"key": key, "operator": "Equal", "value": "false"}, False),
            ({"key": key, "operator": "Exists", "effect": "NoSchedule"}, False),
            ({"key": key, "operator": "Exists", "tolerationSeconds": 30}, False),
            ({"key": "other", "operator": "Exists"}, False),
            ({}, False),
        ]
        for toleration, expected in table:
            self.assertEqual(tolerates([toleration]), expected, toleration)

    @given(
        st.lists(st.fixed_dictionaries({"key": st.text(max_size=3), "operator": st.sampled_from(["Exists", "Equal"])}))
    )
    def test_once_is_enough(self, tolerations: list[dict[str, Any]]) -> None:
        """After the patch no further patch is needed."""
        pod: dict[str, Any] = {"spec": {"tolerations": list(tolerations)}}
        for operation in mutations(pod):
            pod["spec"]["tolerations"].append(operation["value"])
        self.assertEqual(mutations(pod), [])
        self.assertEqual(pod["spec"]["tolerations"][: len(tolerations)], tolerations)


class Reviews(SynchronousTestCase):
    def test_only_pods_being_created(self) -> None:
        """Updates, subresources, other kinds and absent objects are allowed as they are."""
        for more in (
            {"operation": "UPDATE"},
            {"operation": "DELETE", "object": None},
            {"subResource": "eviction"},
            {"kind": {"group": "apps", "kind": "Pod"}},
            {"kind": {"group": "", "kind": "Service"}},
        ):
            self.assertEqual(patch_of(review({"spec": {}}, **more)), [], more)
        for odd in ({}, {"spec": None}, {"spec": {"tolerations": "x"}}):
            self.assertEqual(patch_of(review(odd)), [])

    def test_malformed(self) -> None:
        """What is no review is refused with a sentence that says what is wrong."""
        for body in (
            b"",
            b"[]",
            b"\xff",
            b"{}",
            b'{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"1"}}',
            b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}',
            b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":""}}',
            b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":7}}',
            b" " * (MAX_BODY + 1),
            b"[" * 100000,
        ):
            with self.assertRaises(Malformed) as caught:
                answer(body)
            self.assertGreater(len(str(caught.exception)), 20)

    @given(st.binary(max_size=200))
    def test_no_other_failure(self, body: bytes) -> None:
        """Whatever bytes come, the only failure is Malformed."""
        with contextlib.suppress(Malformed):
            answer(body)
