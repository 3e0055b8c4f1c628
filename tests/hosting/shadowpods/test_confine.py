"""What of a borrower's pod would reach the pods, the tokens or the data of others."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.shadowpods import forge, pod_restrictions

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
OWN = {"matchLabels": {"liqo.io/remote-cluster-id": "c1"}}
EVERYWHERE = "kubernetes.io/os"


def forged(term: dict[str, Any], kind: str = "podAntiAffinity") -> dict[str, Any]:
    found: list[dict[str, Any]] = pod_restrictions.pod_affinity({kind: {REQUIRED: [term]}}, "c1")[kind][REQUIRED]
    return found[0]


class AffinityTests(SynchronousTestCase):
    def test_all_namespaces(self) -> None:
        """A pod that would keep every pod of the cluster from being scheduled keeps off its own tenant's only."""
        term = {"topologyKey": EVERYWHERE, "labelSelector": {}, "namespaceSelector": {}}
        for kind in ("podAffinity", "podAntiAffinity"):
            self.assertEqual(forged(term, kind), {**term, "namespaceSelector": OWN})

    def test_preferences(self) -> None:
        """What is only preferred is narrowed as well: it would tell where others' pods run."""
        one = {"weight": 3, "podAffinityTerm": {"topologyKey": EVERYWHERE, "namespaceSelector": {}}}
        narrowed = pod_restrictions.pod_affinity({"podAffinity": {PREFERRED: [one]}}, "c1")["podAffinity"][PREFERRED]
        self.assertEqual(
            narrowed, [{"weight": 3, "podAffinityTerm": {"topologyKey": EVERYWHERE, "namespaceSelector": OWN}}]
        )

    def test_selected_namespaces(self) -> None:
        """A selector goes on selecting, among the tenant's namespaces; it cannot name another tenant."""
        selector = {"matchLabels": {"team": "a", "liqo.io/remote-cluster-id": "c2"}, "matchExpressions": [{"key": "x"}]}
        self.assertEqual(
            forged({"namespaceSelector": selector, "namespaces": ["kube-system"]}),
            {
                "namespaceSelector": {
                    "matchLabels": {"team": "a", "liqo.io/remote-cluster-id": "c1"},
                    "matchExpressions": [{"key": "x"}],
                }
            },
        )

    def test_named_namespaces(self) -> None:
        """Names stand for those of them that are the tenant's."""
        names = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["kube-system", "shop-c1"]}
        self.assertEqual(
            forged({"topologyKey": EVERYWHERE, "namespaces": ["kube-system", "shop-c1"]}),
            {"topologyKey": EVERYWHERE, "namespaceSelector": {**OWN, "matchExpressions": [names]}},
        )

    def test_names_that_are_none(self) -> None:
        """What is no list of names is refused before an API server sees it."""
        for names in ([1], ["shop-c1", None], [["shop-c1"]], "shop-c1", {"shop-c1": 1}):
            with self.assertRaises(ValueError) as caught:
                forged({"topologyKey": EVERYWHERE, "namespaces": names})
            self.assertIn("namespaces is not a list of names", str(caught.exception))

    def test_the_own_namespace(self) -> None:
        """A term about the pod's own namespace stays as it is, with all else of the affinity."""
        term = {"topologyKey": EVERYWHERE, "labelSelector": {"matchLabels": {"a": "b"}}, "matchLabelKeys": ["c"]}
        affinity = {"podAntiAffinity": {REQUIRED: [term]}, "nodeAffinity": {"x": 1}}
        self.assertEqual(pod_restrictions.pod_affinity(affinity, "c1"), affinity)

    def test_a_whole_pod(self) -> None:
        """The pod that is created has the narrowed affinity."""
        term = {"topologyKey": EVERYWHERE, "namespaceSelector": {}}
        spec = forge.spec_of({"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}, "c1")
        self.assertEqual(spec["affinity"]["podAntiAffinity"][REQUIRED][0]["namespaceSelector"], OWN)

    @given(
        st.recursive(
            st.none() | st.booleans() | st.text(max_size=3),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        [
                            "podAffinity",
                            "podAntiAffinity",
                            REQUIRED,
                            PREFERRED,
                            "podAffinityTerm",
                            "matchLabels",
                            "namespaces",
                            "namespaceSelector",
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
    def test_any_affinity(self, value: Any) -> None:
        """Whatever is written, no term names a namespace, or selects any but of the tenant; or it is a value error."""
        try:
            once = pod_restrictions.pod_affinity(value if isinstance(value, dict) else {"podAffinity": value}, "c1")
        except ValueError:
            return
        self.assertEqual(pod_restrictions.pod_affinity(once, "c1"), once)
        for rules in (once.get("podAffinity") or {}, once.get("podAntiAffinity") or {}):
            terms = [*rules.get(REQUIRED, []), *(one["podAffinityTerm"] for one in rules.get(PREFERRED, []))]
            for term in terms:
                self.assertNotIn("namespaces", term)
                if "namespaceSelector" in term:
                    self.assertEqual(term["namespaceSelector"]["matchLabels"]["liqo.io/remote-cluster-id"], "c1")


class VolumeTests(SynchronousTestCase):
    def refused(self, volume: Any) -> str:
        with self.assertRaises(ValueError) as caught:
            forge.spec_of({"volumes": [{"name": "v", "emptyDir": {}}, volume]}, "c1")
        return str(caught.exception)

    def test_tokens(self) -> None:
        """No pod of a borrower gets a token or a certificate of this cluster's service accounts."""
        for kind in ("serviceAccountToken", "podCertificate"):
            projected = {"sources": [{"configMap": {"name": "x"}}, {kind: {"path": "token", "audience": "sts"}}]}
            self.assertIn(kind, self.refused({"name": "t", "projected": projected}))

    def test_a_long_name_is_cut(self) -> None:
        """The sentence for the borrower holds 63 characters of what it called the volume, as many as a name has."""
        volume = {"name": "v" * 70, "projected": {"sources": [{"serviceAccountToken": {}}]}}
        self.assertIn(f"spec.volumes[{'v' * 63}] asks", self.refused(volume))

    def test_data_of_others(self) -> None:
        """The claim of an ephemeral volume may not do what the borrower's own claims may not."""
        for claim, word in (
            ({"storageClassName": "disks", "volumeName": "of-others"}, "volumeName"),
            ({"storageClassName": ""}, "storage class"),
            ({"dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "x", "namespace": "other"}}, "namespace"),
        ):
            template = {"volumeClaimTemplate": {"spec": claim}}
            self.assertIn(word, self.refused({"name": "e", "ephemeral": template}))

    def test_wrong_shapes(self) -> None:
        """What is not shaped like a volume is a value error as well."""
        volumes: list[Any] = [{"projected": []}, {"projected": {"sources": {}}}, {"ephemeral": 3}, "x"]
        for volume in volumes:
            self.assertTrue(self.refused(volume))

    def test_ordinary_volumes(self) -> None:
        """All other volumes go as they are."""
        volumes = [
            {"name": "a", "projected": {"sources": [{"secret": {"name": "x"}}, {"downwardAPI": {"items": []}}]}},
            {"name": "b", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "disks"}}}},
            {"name": "c", "ephemeral": {"volumeClaimTemplate": {"spec": {"dataSourceRef": {"name": "own"}}}}},
            {"name": "d", "persistentVolumeClaim": {"claimName": "x"}},
        ]
        self.assertEqual(forge.spec_of({"volumes": volumes}, "c1")["volumes"], volumes)
