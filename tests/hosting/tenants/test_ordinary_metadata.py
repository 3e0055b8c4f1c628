"""What API servers need not validate: whatever a condition takes for ordinary breaks no rule."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.tenants.policies import policies
from liqod.hosting.tenants.rights import user_of
from liqod.model.ids import ClusterID
from liqod.model.names import ORIGIN_LABEL
from tests.hosting.shadowpods.admission import Request, refusals

STEADILY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
CONDITION = "is-unlike-others"
BORROWER = user_of(ClusterID("rome"))
GROUPS = {"shadowpods": "offloading.liqo.io", "shadowendpointslices": "offloading.liqo.io"}
MANY = {f"k{number}": "" for number in range(65)}
LONG = {"a": "x" * (32 << 10), "b": "x" * ((32 << 10) + 1)}

keys = st.sampled_from(["app", "a.b", "helm.sh/chart", "helm.sh", "evil.io/x", "grafana_dashboard", "liqo.io/type"])
entries = st.one_of(
    st.none(),
    st.dictionaries(keys, st.sampled_from(["", "x"]), max_size=3),
    st.sampled_from([MANY, {**MANY, "more": ""}, LONG, {**LONG, "c": "x"}]),
)
metadata = st.fixed_dictionaries(
    {},
    optional={
        "labels": entries,
        "annotations": entries,
        "finalizers": st.lists(st.sampled_from(["kubernetes.io/pvc-protection", "a/b"]), max_size=2),
        "ownerReferences": st.lists(st.sampled_from([{"uid": "1"}, {"uid": "2"}]), max_size=2),
    },
)
endpoints = st.integers(min_value=0, max_value=102).map(lambda count: [{"addresses": ["192.0.2.1"]}] * count)
specs = st.fixed_dictionaries(
    {},
    optional={
        "template": st.fixed_dictionaries(
            {},
            optional={
                "addressType": st.sampled_from(["IPv4", "FQDN"]),
                "endpoints": endpoints,
                "ports": st.sampled_from([[], [{"port": 1}] * 99, [{"port": 1}] * 101]),
            },
        )
    },
)


def without_condition() -> list[dict[str, Any]]:
    """Return the policies as if every object of a borrower's were validated."""
    found = []
    for policy in policies():
        spec = policy["spec"]
        kept = [one for one in spec["matchConditions"] if one["name"] != CONDITION]
        found.append({**policy, "spec": {**spec, "matchConditions": kept}})
    return found


PLAIN = without_condition()


def body(found: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in found.items() if value is not None}
    return {"metadata": {"name": "x", **given}, "spec": spec}


class OrdinaryTests(SynchronousTestCase):
    @given(
        st.sampled_from(["configmaps", "secrets", "shadowpods", "shadowendpointslices"]),
        metadata,
        st.one_of(st.none(), metadata),
        specs,
    )
    @example("secrets", {"annotations": LONG}, {"annotations": LONG}, {})
    @example("secrets", {"labels": MANY}, {"labels": MANY}, {})
    @STEADILY
    def test_the_same_is_refused(
        self, resource: str, new: dict[str, Any], old: dict[str, Any] | None, spec: dict[str, Any]
    ) -> None:
        """With the condition and without it, by the same messages."""
        labels = {**(new.get("labels") or {}), ORIGIN_LABEL: "rome"}
        made = body({**new, "labels": labels}, spec)
        before = None if old is None else body(old, spec)
        operation = "CREATE" if old is None else "UPDATE"
        request = Request(BORROWER, operation, resource, made, before, group=GROUPS.get(resource, ""))
        self.assertEqual(refusals(policies(), request), refusals(PLAIN, request))

    def test_what_is_spared(self) -> None:
        """What the daemon writes most at a lender is not validated; what others write has no part in it."""
        named = {one["metadata"]["name"]: one["spec"] for one in policies()}
        for name in ("liqod-borrower-metadata", "liqod-borrower-finalizers", "liqod-borrower-slices"):
            conditions = [one["name"] for one in named[name]["matchConditions"]]
            self.assertEqual(conditions, ["by-a-borrower", CONDITION])
        everything = [{**one, "spec": {**one["spec"], "validations": [DENY]}} for one in policies()]
        bad = body({"labels": MANY, "finalizers": ["a/b"]}, {})
        plain = body({"labels": {"app": "web", ORIGIN_LABEL: "rome"}}, {})
        for user, made, refused in ((BORROWER, plain, 0), (BORROWER, bad, 1), ("admin", bad, 0)):
            request = Request(user, "CREATE", "shadowpods", made, group=GROUPS["shadowpods"])
            self.assertEqual(len(refusals(everything, request)), refused, (user, made))


DENY = {"expression": "false", "message": "validated"}
