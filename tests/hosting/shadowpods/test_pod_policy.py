"""The admission policy of ShadowPods refuses what the daemon refuses, and nothing else.

The evaluator goes through both sides of an alternative, also of one that begins with "it is null": a list or mapping
that is null is for the real API server (``tests.real.test_weakened_policies``).
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import HostingSettings
from liqod.hosting.shadowpods import admission, forge
from liqod.hosting.shadowpods.admission import read_spec
from liqod.hosting.shadowpods.pod_contract import restrict
from liqod.hosting.tenants.admission import pod_shape
from liqod.hosting.tenants.contract import Contract
from liqod.hosting.tenants.policies import policies
from liqod.model.objects.portable_metadata import POD_POLICY
from tests.hosting.shadowpods.admission import Request, refusals
from tests.hosting.shadowpods.test_forge import shadow
from tests.variations import pods
from tests.variations.families import SEED

STEADILY = settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
MAIN: Final[Mapping[str, Any]] = {"name": "main", "image": "app:1"}
GENEROUS: Final = Contract(
    HostingSettings(
        runtime_classes=["gvisor"],
        service_accounts=["default", "strong"],
        storage_classes=["disks", "liqo"],
        volumes=["csi"],
        labels=["example.com/"],
    ),
    own_storage_class="liqo",
)
ORDINARY: Final = Contract()


def _policy(contract: Contract) -> dict[str, Any]:
    return next(one for one in policies(contract) if one["metadata"]["name"] == POD_POLICY)


POLICIES: Final = {id(one): _policy(one) for one in (ORDINARY, GENEROUS)}
"""To compile them for each question takes longer than to ask."""
CLASSES: Final = (None, "", "disks", "liqo", "private")


def _listed(shape: Any) -> set[str]:
    """Return the names of all fields of a shape, at every depth."""
    if isinstance(shape, list):
        return _listed(shape[0])
    if not isinstance(shape, Mapping):
        return set()
    return {*shape, *(name for inner in shape.values() for name in _listed(inner))}


LISTED: Final = _listed({**pod_shape.POD, **pod_shape.VOLUMES}) - {"labels"}


def judged_by_policy(spec: Any, contract: Contract, old: Any = None, **metadata: Any) -> list[str]:
    """Return why the API server refuses a ShadowPod; ``old`` is the spec of the one that is changed."""
    new = {"metadata": {"name": "web", **metadata}, "spec": {} if spec is None else {"pod": spec}}
    before = None if old is None else {**new, "spec": {"pod": old}}
    operation = "CREATE" if old is None else "UPDATE"
    policy = POLICIES.get(id(contract)) or _policy(contract)
    return refusals(
        [policy],
        Request("liqo:cluster:rome", operation, "shadowpods", new, before, group="offloading.liqo.io"),
    )


def judged_by_daemon(spec: Any, contract: Contract, **metadata: Any) -> str:
    """Return why the daemon refuses it."""
    made = shadow(spec, **metadata)
    try:
        read_spec(made)
        forge.pod(restrict(made, contract), accounts=contract.granted.service_accounts)
    except ValueError as error:
        return str(error)
    return ""


def filled(shape: Any, value: Any = "a") -> Any:
    """Return a value with every field of a shape."""
    if isinstance(shape, list):
        return [filled(shape[0], value)]
    return {name: filled(inner, value) for name, inner in shape.items()} if isinstance(shape, dict) else value


def places(value: Any) -> list[Any]:
    """Return the mappings of a value, at every depth."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [*([value] if isinstance(value, dict) else []), *(one for item in inner for one in places(item))]


class PodPolicyTests(SynchronousTestCase):
    """Both judge each pod alike."""

    def agree(self, spec: Any, contract: Contract, **metadata: Any) -> str:
        """Check that both refuse a pod, or neither does; return why."""
        by_policy, by_daemon = (
            judged_by_policy(spec, contract, **metadata),
            judged_by_daemon(spec, contract, **metadata),
        )
        self.assertEqual(bool(by_policy), bool(by_daemon), f"{spec} {metadata}: {by_policy}, {by_daemon}")
        return by_daemon

    def test_variations(self) -> None:
        """What a tenant may not have, in each place where it can be asked for."""
        # An evaluation takes a while: some by chance.
        some = Random(SEED).sample(pods.forbidden_objects(), 40)
        refused = [self.agree(one.desired["spec"]["pod"], ORDINARY, **_metadata(one.desired)) for one in some]
        self.assertGreater(len([one for one in refused if one]), 5)
        self.assertGreater(len([one for one in refused if not one]), 5, "what is dropped or forced is not refused")

    def everything(self) -> dict[str, Any]:
        """Return a pod with every field that a pod may have."""
        shapes = {
            name: shape for name, shape in pod_shape.POD.items() if name not in ("runtimeClassName", "tolerations")
        }
        made: dict[str, Any] = filled({**shapes, "volumes": None})
        made |= dict.fromkeys(("hostNetwork", "hostPID", "hostIPC", "automountServiceAccountToken"), False)
        kinds = {name: filled(shape) for name, shape in pod_shape.VOLUMES.items()}
        for source in kinds["projected"]["sources"]:
            for token in pod_shape.TOKENS:
                del source[token]
        claim = kinds["ephemeral"]["volumeClaimTemplate"]
        claim["metadata"] = {"labels": {"a": "b"}, "annotations": {"a": "b"}}
        claim["spec"] |= {"volumeName": "", "storageClassName": "disks"}
        claim["spec"]["dataSourceRef"]["namespace"] = ""
        made["volumes"] = [{"name": name, name: kind} for name, kind in kinds.items()]
        made["containers"][0]["resources"] = {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
        # The other kinds have the same list.
        made |= {"initContainers": [], "ephemeralContainers": []}
        made["resources"] = {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
        return made

    def test_each_field(self) -> None:
        """A pod with all fields is none that is refused; one more, at whatever depth, is, unless it is null."""
        whole = self.everything()
        self.assertEqual(judged_by_policy(whole, GENEROUS), [])
        listed = [place for place in places(whole) if place.keys() & LISTED]
        for place in listed:
            place["addedTomorrow"] = None
        self.assertEqual(judged_by_policy(whole, GENEROUS), [])
        # An evaluation takes a second: some by chance.
        for place in listed:
            del place["addedTomorrow"]
        for place in Random(SEED).sample(listed, 12):
            place["addedTomorrow"] = "x"
            self.assertEqual(len(judged_by_policy(whole, GENEROUS)), 1, str(place.keys()))
            self.assertTrue(judged_by_daemon(whole, GENEROUS), str(place.keys()))
            del place["addedTomorrow"]

    @given(
        st.sampled_from([None, "", "gvisor", "kata"]),
        st.sampled_from([None, False, True]),
        st.sampled_from([None, "", "strong", "other"]),
        st.sampled_from([None, "", "strong", "other"]),
        st.sampled_from(["serviceAccountToken", "podCertificate", "configMap"]),
    )
    @STEADILY
    def test_classes_and_accounts(
        self, runtime: str | None, automount: bool | None, name: str | None, old: str | None, source: str
    ) -> None:
        """Whatever is granted, and whichever way it is asked for."""
        spec = {
            "containers": [MAIN],
            "runtimeClassName": runtime,
            "automountServiceAccountToken": automount,
            "serviceAccountName": name,
            "serviceAccount": old,
            "volumes": [{"name": "v", "projected": {"sources": [{source: {"name": "c"}}]}}],
        }
        for contract in (ORDINARY, GENEROUS):
            self.agree(spec, contract)

    @given(
        st.sampled_from(CLASSES),
        st.sampled_from([None, "", "others"]),
        st.sampled_from([None, "", "default"]),
        st.sampled_from([None, {"driver": "x"}]),
    )
    @STEADILY
    def test_volumes(self, klass: str | None, volume: str | None, space: str | None, csi: Any) -> None:
        """Claims of ephemeral volumes, and kinds that a lender grants."""
        claim = {
            "storageClassName": klass,
            "volumeName": volume,
            "dataSourceRef": {"kind": "A", "name": "a", "namespace": space},
        }
        template = {"metadata": {"creationTimestamp": None}, "spec": claim}
        volumes = [{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}, {"name": "w", "csi": csi}]
        for contract in (ORDINARY, GENEROUS):
            self.agree({"containers": [MAIN], "volumes": volumes}, contract)

    @given(
        st.lists(
            st.sampled_from(
                [
                    "app",
                    "example.com/a",
                    "example.org/a",
                    "topology.kubernetes.io/zone",
                    "kubernetes.io/x",
                    "notkubernetes.io/x",
                    "x.k8s.io/a/b",
                    "a/kubernetes.io/x",
                    "app.kubernetes.io/name",
                    "with.dot",
                    "aadpodidbinding",
                ]
            ),
            unique=True,
            max_size=4,
        )
    )
    @STEADILY
    def test_labels(self, keys: list[str]) -> None:
        """What is not granted is refused, but for labels that Kubernetes itself keeps."""
        for contract in (ORDINARY, GENEROUS):
            self.agree({"containers": [MAIN]}, contract, labels=dict.fromkeys(keys, "x"))

    def test_numbers(self) -> None:
        """Containers and tolerations, up to the most of each; that there is none is said by the daemon."""
        # To evaluate 256 containers takes minutes.
        for module in (pod_shape, admission):
            self.patch(module, "MAX_CONTAINERS", 2)
        few = Contract(HostingSettings())
        tolerations = [{"key": f"k{n}"} for n in range(512)]
        two = [MAIN, {**MAIN, "name": "second"}]
        for spec, refused in (
            ({"containers": two, "initContainers": []}, False),
            ({"containers": two, "initContainers": [MAIN]}, True),
            ({"containers": [MAIN], "ephemeralContainers": two}, True),
            ({"containers": [MAIN], "tolerations": tolerations}, False),
            ({"containers": [MAIN], "tolerations": [*tolerations, {"key": "x"}]}, True),
        ):
            self.assertEqual(bool(self.agree(spec, few)), refused)
        without: tuple[dict[str, Any] | None, ...] = (None, {}, {"containers": []})
        for nothing in without:
            self.assertEqual(judged_by_policy(nothing, ORDINARY), [])

    def test_changes(self) -> None:
        """A pod from before a setting was changed keeps what it has; what it gets is judged."""
        bad, good = {"containers": [MAIN], "runtimeClassName": "gvisor"}, {"containers": [MAIN]}
        self.assertEqual(judged_by_policy(bad, ORDINARY, bad), [])
        self.assertEqual(len(judged_by_policy(bad, ORDINARY, good)), 1)
        self.assertEqual(judged_by_policy(good, ORDINARY, bad), [])


def _metadata(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body["metadata"].items() if key in ("labels", "annotations")}
