"""ShadowPod -> Pod: what is kept, what is enforced, what a change asks for."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.shadowpods import forge
from liqod.hosting.shadowpods.admission import read_spec
from liqod.hosting.shadowpods.pod_update import patches, sizes
from liqod.hosting.tenants.admission.pod_shape import MAX_TOLERATIONS
from liqod.hosting.views import FORGED_ANNOTATION, Pod, is_managed
from liqod.model.names import HOME_SPEC_ANNOTATION
from liqod.model.records.views import MAX_POD_BYTES, ShadowPod

CONTAINERS = [{"name": "main", "image": "app:1", "env": [{"name": "A", "value": "b"}]}]


def shadow(
    pod: Any = None, labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None
) -> ShadowPod:
    return msgspec.convert(
        {
            "metadata": {
                "name": "web",
                "namespace": "shop-c1",
                "uid": "u-1",
                "labels": {"offloading.liqo.io/origin": "c1", **(labels or {})},
                "annotations": annotations or {},
            },
            "spec": {"pod": msgspec.Raw(json.dumps(pod if pod is not None else {"containers": CONTAINERS}).encode())},
        },
        ShadowPod,
    )


def running(body: dict[str, Any], **metadata: Any) -> Pod:
    return msgspec.convert({**body, "metadata": {**body["metadata"], "uid": "p-1", **metadata}}, Pod)


class ForgeTests(SynchronousTestCase):
    def test_what_is_the_borrowers_is_kept(self) -> None:
        """Everything of the spec that stays within the namespace is there word for word."""
        spec = {
            "containers": CONTAINERS,
            "volumes": [{"name": "v", "emptyDir": {}}],
            "topologySpreadConstraints": [{"maxSkew": 1}],
            "nodeSelector": {"disk": "ssd"},
            "restartPolicy": "Never",
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "somethingNew": {"a": [1]},
        }
        forged = forge.pod(shadow(spec))["spec"]
        self.assertEqual({key: forged[key] for key in spec}, spec)

    def test_what_reaches_beyond_is_enforced(self) -> None:
        """Host namespaces, nodes, priorities, schedulers and service accounts are not the borrower's to choose."""
        hostile = {
            "containers": CONTAINERS,
            "hostNetwork": True,
            "hostPID": True,
            "hostIPC": True,
            "nodeName": "control-plane",
            "priority": 2000001000,
            "priorityClassName": "system-node-critical",
            "preemptionPolicy": "PreemptLowerPriority",
            "schedulerName": "mine",
            "schedulingGates": [{"name": "x"}],
            "serviceAccountName": "admin",
            "serviceAccount": "admin",
            "automountServiceAccountToken": True,
            "ephemeralContainers": [{"name": "e"}],
            "terminationGracePeriodSeconds": 10**15,
        }
        forged = forge.pod(shadow(hostile))["spec"]
        self.assertEqual(
            {key: value for key, value in forged.items() if key not in ("containers", "affinity")},
            {
                "hostNetwork": False,
                "hostPID": False,
                "hostIPC": False,
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 3600,
            },
        )

    def test_never_on_a_virtual_node(self) -> None:
        """Every way for a pod to be placed excludes virtual nodes, and no toleration of their taint is left."""
        out = {"key": "liqo.io/type", "operator": "NotIn", "values": ["virtual-node"]}
        zone = {"key": "zone", "operator": "In", "values": ["a"]}
        required = "requiredDuringSchedulingIgnoredDuringExecution"

        def terms(*given: dict[str, Any]) -> list[dict[str, Any]]:
            affinity = {"nodeAffinity": {required: {"nodeSelectorTerms": list(given)}}}
            forged = forge.spec_of({"containers": CONTAINERS, "affinity": affinity}, "c1")
            found: list[dict[str, Any]] = forged["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"]
            return found

        self.assertEqual(terms(), [{"matchExpressions": [out]}])
        self.assertEqual(
            terms({"matchExpressions": [zone]}, {"matchFields": [zone]}),
            [{"matchExpressions": [zone, out]}, {"matchFields": [zone], "matchExpressions": [out]}],
        )
        self.assertEqual(terms({}), [{}], "an empty term matches no node and must not begin to match some")
        tolerations = [{"key": "virtual-node.liqo.io/not-allowed", "operator": "Exists"}, {"key": "b"}]
        self.assertEqual(forge.spec_of({"tolerations": tolerations}, "c1")["tolerations"], [{"key": "b"}])

    def test_ownership(self) -> None:
        """The pod is controlled by the ShadowPod, without blocking its deletion, and says who keeps it."""
        pod = forge.pod(shadow(labels={"app": "web", "liqo.io/managed-by": "me", "liqo.io/shadowPod": "true"}))
        self.assertTrue(is_managed(running(pod)))
        self.assertEqual(pod["metadata"]["ownerReferences"][0]["blockOwnerDeletion"], False)
        self.assertEqual(
            pod["metadata"]["labels"],
            {"app": "web", "offloading.liqo.io/origin": "c1", "liqo.io/managed-by": "shadowpod"},
        )

    def test_no_mirror_pods(self) -> None:
        """Annotations by which a pod would pass for another kind of pod are dropped."""
        pod = forge.pod(shadow(annotations={"kubernetes.io/config.mirror": "x", "note": "y"}))
        self.assertEqual(set(pod["metadata"]["annotations"]), {"note", FORGED_ANNOTATION})

    def test_no_pod_of_closed_services(self) -> None:
        """The label that services select which must take no traffic is on no pod, and goes from those that have it."""
        asked = shadow(labels={"offloading.liqo.io/closed": "true"})
        pod = forge.pod(asked)
        self.assertNotIn("offloading.liqo.io/closed", pod["metadata"]["labels"])
        before = forge.Forged("d", sorted(asked.metadata.labels))
        pod["metadata"]["labels"]["offloading.liqo.io/closed"] = "true"
        pod["metadata"]["annotations"][FORGED_ANNOTATION] = msgspec.json.encode(before).decode()
        removal = {"op": "remove", "path": "/metadata/labels/offloading.liqo.io~1closed"}
        self.assertIn(removal, patches.changes(asked, running(pod)))

    def test_wrong_shapes(self) -> None:
        """A spec that is not shaped like one is refused as a value error, never anything else."""
        cases: list[Any] = [
            [],
            "x",
            3,
            {},
            {"containers": []},
            {"containers": "x"},
            {"containers": [3]},
            {"containers": CONTAINERS, "affinity": []},
            {"containers": CONTAINERS, "affinity": {"nodeAffinity": 3}},
            {"containers": CONTAINERS, "tolerations": {"a": 1}},
            {"containers": [{"name": "c"}] * 300},
            {"containers": [{"name": "c", "image": "x" * 300_000}]},
        ]
        for hostile in cases:
            with self.assertRaises(ValueError, msg=repr(hostile)[:60]):
                forge.pod(shadow(hostile))

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        [
                            "containers",
                            "affinity",
                            "nodeAffinity",
                            "tolerations",
                            "nodeSelectorTerms",
                            "matchExpressions",
                            "requiredDuringSchedulingIgnoredDuringExecution",
                            "hostPID",
                            "resources",
                            "requests",
                            "terminationGracePeriodSeconds",
                        ]
                    ),
                    inner,
                    max_size=4,
                )
            ),
            max_leaves=20,
        )
    )
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_any_json(self, value: Any) -> None:
        """Whatever a borrower writes is either forged, safely and the same way twice, or a value error."""
        try:
            once = forge.spec_of(value, "c1")
        except ValueError:
            return
        self.assertEqual(forge.spec_of(once, "c1"), once)
        self.assertIs(once["hostPID"], False)
        self.assertIs(once["automountServiceAccountToken"], False)


class ChangesTests(SynchronousTestCase):
    def test_nothing_changed(self) -> None:
        """A pod as it was forged asks for no patch, also after this cluster changed things about it."""
        pod = forge.pod(shadow(labels={"app": "web"}))
        self.assertEqual(patches.changes(shadow(labels={"app": "web"}), running(pod)), [])
        pod["spec"]["containers"][0]["image"] = "mirror/app:1"
        pod["metadata"]["labels"]["team"] = "ops"
        self.assertEqual(patches.changes(shadow(labels={"app": "web"}), running(pod)), [])

    def test_labels_follow(self) -> None:
        """Changed labels are set, removed ones removed; those of others stay; the origin never changes."""
        pod = forge.pod(shadow(labels={"app": "web", "a/b": "1"}))
        pod["metadata"]["labels"]["team"] = "ops"
        after = shadow(labels={"app": "api", "offloading.liqo.io/origin": "c2"})
        patch = patches.changes(after, running(pod))
        self.assertEqual(patch[0], {"op": "test", "path": "/metadata/uid", "value": "p-1"})
        self.assertEqual(
            [step for step in patch if step["path"].startswith("/metadata/labels")],
            [
                {"op": "add", "path": "/metadata/labels/app", "value": "api"},
                {"op": "remove", "path": "/metadata/labels/a~1b"},
            ],
        )

    def test_the_spec_follows_in_place(self) -> None:
        """Images by container name, added tolerations and the deadline reach the pod; the enforced rest stays."""
        before = {"containers": [*CONTAINERS, {"name": "side", "image": "s:1"}], "tolerations": [{"key": "a"}]}
        after = {
            "containers": [{"name": "side", "image": "s:2"}, *CONTAINERS],
            "tolerations": [{"key": "b"}, {"key": "virtual-node.liqo.io/not-allowed"}],
            "activeDeadlineSeconds": 60,
            "hostNetwork": True,
        }
        patch = patches.changes(shadow(after), running(forge.pod(shadow(before))))
        self.assertEqual(
            [step for step in patch if step["path"].startswith("/spec")],
            [
                {"op": "replace", "path": "/spec/containers/1/image", "value": "s:2"},
                {"op": "add", "path": "/spec/tolerations/-", "value": {"key": "b"}},
                {"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 60},
            ],
        )
        metadata = patches.changes(shadow(after), running(forge.pod(shadow(before))), spec=False)
        self.assertFalse([step for step in metadata if step["path"].startswith("/spec")])

    def test_the_patch_settles_it(self) -> None:
        """The patch carries the record of what was forged, so that the next look asks for nothing."""
        after = shadow(labels={"app": "api"})
        patch = patches.changes(after, running(forge.pod(shadow(labels={"app": "web"}))))
        path = "/metadata/annotations/offloading.liqo.io~1forged-from"
        record = next(step["value"] for step in patch if step["path"] == path)
        self.assertEqual(record, forge.pod(after)["metadata"]["annotations"][FORGED_ANNOTATION])

    def test_the_spec_that_a_pod_has(self) -> None:
        """By the digest of its spec the borrower knows what its pod has: one that was refused is not among it."""
        before = shadow(annotations={HOME_SPEC_ANNOTATION: "one"})
        after = shadow(
            {"containers": [{**CONTAINERS[0], "image": "app:2"}]}, annotations={HOME_SPEC_ANNOTATION: "two", "a": "b"}
        )
        pod, bare = running(forge.pod(before)), running(forge.pod(shadow()))
        path = f"/metadata/annotations/{HOME_SPEC_ANNOTATION.replace('/', '~1')}"
        for there, refused, wanted in (
            (pod, {}, [{"op": "add", "path": path, "value": "two"}]),
            (pod, {"spec": False}, []),
            (pod, {"resized": False}, []),
            (bare, {"spec": False}, []),
        ):
            patch = patches.changes(after, there, **refused)
            self.assertEqual([step for step in patch if step["path"] == path], wanted)
            self.assertIn({"op": "add", "path": "/metadata/annotations/a", "value": "b"}, patch)

    def test_resizing_the_pod(self) -> None:
        """Resources of the pod as a whole are resized like those of its containers."""
        before = {"containers": CONTAINERS, "resources": {"requests": {"cpu": "1"}}}
        after = {"containers": CONTAINERS, "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}}
        pod = running(forge.pod(shadow(before)))
        self.assertEqual(sizes.resize(shadow(before), pod), [])
        self.assertEqual(
            sizes.resize(shadow(after), pod)[1:],
            [
                {"op": "add", "path": "/spec/resources/requests/cpu", "value": "2"},
                {"op": "add", "path": "/spec/resources/limits", "value": {"cpu": "2"}},
            ],
        )

    def test_a_lost_record(self) -> None:
        """A pod whose record was removed or damaged gets it back, and loses no label by it."""
        pod = forge.pod(shadow(labels={"app": "web"}))
        pod["metadata"]["annotations"] = {FORGED_ANNOTATION: "[not what it was"}
        patch = patches.changes(shadow(labels={"app": "web"}), running(pod))
        self.assertEqual([step["op"] for step in patch], ["test", "add"])

    def test_resizing(self) -> None:
        """CPU and memory that the borrower changes are changed by name; what this cluster added to them stays."""
        sidecar = {"name": "log", "image": "l:1", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
        resources = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "64Mi"}}
        before = {
            "containers": [{**CONTAINERS[0], "resources": resources}, {"name": "bare", "image": "b:1"}],
            "initContainers": [{"name": "once", "image": "o:1"}, sidecar],
        }
        pod = forge.pod(shadow(before))
        self.assertEqual(sizes.resize(shadow(before), running(pod)), [])
        pod["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "2"
        pod["spec"]["containers"][0]["resources"]["requests"]["memory"] = "128Mi"
        self.assertEqual(sizes.resize(shadow(before), running(pod)), [])
        after = json.loads(json.dumps(before))
        after["containers"][0]["resources"]["requests"] = {"cpu": "0.2", "memory": "0.125Gi"}
        after["containers"][1]["resources"] = {"requests": {"cpu": "1"}}
        after["initContainers"][0]["resources"] = {"requests": {"example.com/gpu": "1"}}
        after["initContainers"][1]["resources"] = {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}
        self.assertEqual(
            sizes.resize(shadow(after), running(pod)),
            [
                {"op": "test", "path": "/metadata/uid", "value": "p-1"},
                {"op": "add", "path": "/spec/containers/0/resources/requests/cpu", "value": "0.2"},
                {"op": "add", "path": "/spec/containers/1/resources", "value": {}},
                {"op": "add", "path": "/spec/containers/1/resources/requests", "value": {"cpu": "1"}},
                {"op": "add", "path": "/spec/initContainers/1/resources/requests/cpu", "value": "2"},
                {"op": "add", "path": "/spec/initContainers/1/resources/limits", "value": {"cpu": "2"}},
            ],
        )
        self.assertTrue(patches.changes(shadow(after), running(pod)))

    def test_containers_for_debugging(self) -> None:
        """A container added to a running pod is added here too, once; a pod made again starts without the old ones."""
        one, two = {"name": "debug-1", "image": "d:1"}, {"name": "debug-2", "image": "d:1"}
        before, after = {"containers": CONTAINERS}, {"containers": CONTAINERS, "ephemeralContainers": [one]}
        pod = forge.pod(shadow(before))
        same = {"op": "test", "path": "/metadata/uid", "value": "p-1"}
        added = patches.debugging(shadow(after), running(pod))
        self.assertEqual(added, [same, {"op": "add", "path": "/spec/ephemeralContainers", "value": [one]}])
        self.assertTrue(patches.changes(shadow(after), running(pod)))
        pod["spec"]["ephemeralContainers"] = [one]
        self.assertEqual(patches.debugging(shadow(after), running(pod)), [])
        both = {**after, "ephemeralContainers": [one, two]}
        appended = {"op": "add", "path": "/spec/ephemeralContainers/-", "value": two}
        self.assertEqual(patches.debugging(shadow(both), running(pod)), [same, appended])
        remade = forge.pod(shadow(after))
        self.assertNotIn("ephemeralContainers", remade["spec"])
        self.assertEqual(patches.changes(shadow(after), running(remade)), [])
        self.assertEqual(patches.debugging(shadow(after), running(remade)), [])
        self.assertEqual(
            patches.debugging(shadow(both), running(remade)),
            [same, {"op": "add", "path": "/spec/ephemeralContainers", "value": [two]}],
        )

    def test_many_tolerations(self) -> None:
        """They are compared each with each, so there is an end to them."""
        for count, allowed in ((MAX_TOLERATIONS, True), (MAX_TOLERATIONS + 1, False)):
            asked = shadow({"containers": CONTAINERS, "tolerations": [{"key": f"k{n}"} for n in range(count)]})
            if allowed:
                self.assertEqual(len(read_spec(asked).tolerations or ()), count)
            else:
                with self.assertRaisesRegex(ValueError, "more than 512 tolerations"):
                    read_spec(asked)

    def test_what_adds_up(self) -> None:
        """Containers for debugging and tolerations stay in a pod: the bounds hold for it with all that came before."""
        pod = forge.pod(shadow({"containers": CONTAINERS}))
        present: list[dict[str, Any]] = [{"name": f"d-{n}", "image": "d:1"} for n in range(254)]
        pod["spec"]["ephemeralContainers"] = present
        last = {"containers": CONTAINERS, "ephemeralContainers": [{"name": "last", "image": "d:1"}]}
        self.assertEqual(len(CONTAINERS), 1)
        self.assertTrue(patches.debugging(shadow(last), running(pod)))
        present.append({"name": "d-254", "image": "d:1"})
        with self.assertRaisesRegex(ValueError, "more than 256 containers"):
            patches.debugging(shadow(last), running(pod))
        present[:] = [{"name": "large", "image": "d:1", "args": ["x" * (MAX_POD_BYTES - 60)]}]
        with self.assertRaisesRegex(ValueError, "with what was added before"):
            patches.debugging(shadow(last), running(pod))
        after = {"containers": CONTAINERS, "tolerations": [{"key": "gpu", "value": "y" * 60, "operator": "Equal"}]}
        with self.assertRaisesRegex(ValueError, "with what was added before"):
            patches.changes(shadow(after), running(pod))
        # What is not added is not held against the pod.
        self.assertTrue(patches.changes(shadow({"containers": [{"name": "main", "image": "a:2"}]}), running(pod)))
        del present[:]
        pod["spec"]["tolerations"] = [{"key": "gpu", "value": f"{n:060}", "operator": "Equal"} for n in range(3000)]
        with self.assertRaisesRegex(ValueError, "with what was added before"):
            patches.changes(shadow(after), running(pod))

    def test_seconds_of_tolerations(self) -> None:
        """The seconds of a toleration follow; it is not added a second time."""
        before = {"containers": CONTAINERS, "tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 5}]}
        after = {"containers": CONTAINERS, "tolerations": [{"key": "a", "operator": "Exists"}]}
        patch = patches.changes(shadow(after), running(forge.pod(shadow(before))))
        self.assertEqual(
            [step for step in patch if step["path"].startswith("/spec")],
            [{"op": "replace", "path": "/spec/tolerations/0", "value": {"key": "a", "operator": "Exists"}}],
        )
