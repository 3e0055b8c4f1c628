"""Tests of liqod.webhook.pod_view."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.names import TYPE_LABEL
from liqod.model.objects.tolerations import EVICT_AFTER, HELD
from liqod.model.records.offloading import BOTH, LOCAL, REMOTE, OffloadingPolicy
from liqod.webhook.mutating_policies import withdrawn
from liqod.webhook.placement import TOLERATION, hold_tolerations, mutations
from liqod.webhook.pod_view import MAX_PARTS, TooManyParts, read_pod
from liqod.webhook.preference import prefer_home
from liqod.webhook.review import answer
from tests.webhook.test_review import review

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "true", TYPE_LABEL, "virtual-node"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["key", "values", "x"]), inner),
    max_leaves=6,
)
_REQUIREMENTS = st.fixed_dictionaries(
    {"key": st.sampled_from([TYPE_LABEL, "a"]), "operator": st.sampled_from(["In", "Exists"])},
    optional={"values": st.lists(st.sampled_from(["virtual-node", "b"]), max_size=2)},
)
_TERMS = st.lists(st.fixed_dictionaries({}, optional={"matchExpressions": st.lists(_REQUIREMENTS, max_size=2)}))
_REQUIRED = st.fixed_dictionaries({"nodeSelectorTerms": _TERMS})
_AFFINITY = st.fixed_dictionaries(
    {},
    optional={
        "nodeAffinity": st.fixed_dictionaries(
            {}, optional={"requiredDuringSchedulingIgnoredDuringExecution": _REQUIRED | _JSON}
        ),
        "podAffinity": _JSON,
    },
)
_TOLERATIONS = st.lists(st.sampled_from([TOLERATION, {"key": "a", "operator": "Exists"}, {"tolerationSeconds": 3}]))
_SPEC = st.fixed_dictionaries(
    {},
    optional={
        "affinity": _AFFINITY | _JSON,
        "tolerations": _TOLERATIONS | _JSON,
        "nodeName": _JSON,
        "nodeSelector": st.fixed_dictionaries({}, optional={TYPE_LABEL: st.just("virtual-node"), "a": _JSON}) | _JSON,
        "runtimeClassName": st.sampled_from(["liqo", "other"]) | _JSON,
        "topologySpreadConstraints": _JSON,
        "containers": _JSON,
    },
)
_ANNOTATIONS = st.fixed_dictionaries({}, optional={HELD: st.just("{}"), EVICT_AFTER: st.sampled_from(["5", "x"])})
_METADATA = st.fixed_dictionaries({}, optional={"annotations": _ANNOTATIONS | st.none(), "labels": _JSON})
_PODS = st.fixed_dictionaries({}, optional={"metadata": _METADATA, "spec": _SPEC | _JSON, "status": _JSON})


def _patch(pod: dict[str, Any], policy: OffloadingPolicy) -> list[dict[str, Any]]:
    without, bare = withdrawn(pod)
    placed = mutations(bare, policy)
    return [*without, *placed, *hold_tolerations(bare, policy, 30.0), *prefer_home(bare, policy, placed)]


class ReadPodTests(SynchronousTestCase):
    """What is read of a pod under review."""

    @given(_PODS, st.sampled_from([LOCAL, REMOTE, BOTH]))
    def test_the_patch_is_that_of_the_whole_pod(self, pod: dict[str, Any], placement: str) -> None:
        """What is not decoded decides nothing: the patch of what was read is that of the whole pod."""
        read = read_pod(msgspec.json.encode(pod))
        assert read is not None
        policy = OffloadingPolicy(placement=placement)
        self.assertEqual(_patch(read, policy), _patch(pod, policy))

    def test_the_rest_is_not_decoded(self) -> None:
        """Of all other fields no value is built, however many parts they have."""
        rest = b"[" + b",".join([b"[[]]"] * 100_000) + b"]"
        raw = b'{"x":%b,"metadata":{"labels":%b},"spec":{"nodeName":"n","x":%b}}' % (rest, rest, rest)
        self.assertEqual(read_pod(raw), {"metadata": {}, "spec": {"nodeName": "n"}})

    def test_a_field_of_many_parts(self) -> None:
        """A field that has more parts than any that is useful is refused before it is decoded."""
        for name in ("affinity", "tolerations", "nodeSelector", "topologySpreadConstraints"):
            raw = b'{"spec":{"%b":[%b]}}' % (name.encode(), b",".join([b"{}"] * MAX_PARTS))
            with self.assertRaisesRegex(TooManyParts, f"{name} of the pod has some .* parts: more than"):
                read_pod(raw)
            response = msgspec.json.decode(answer(review(msgspec.Raw(raw))))["response"]
            self.assertEqual((response["allowed"], response["status"]["code"]), (False, 422), name)

    def test_no_pod(self) -> None:
        """Null is no pod; what has other shapes is one without what would be read."""
        self.assertIsNone(read_pod(b" null"))
        self.assertEqual(read_pod(b'{"metadata":[],"spec":"x"}'), {})
        with self.assertRaises(msgspec.DecodeError):
            read_pod(b"[]")
