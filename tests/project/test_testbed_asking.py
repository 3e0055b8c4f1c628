"""What the testbed reads without kubectl: which words it understands, where it looks, and what it makes of answers."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.testbed.asking import Asker, Kind, Question, as_kubectl, kinds, understood

CORE = {
    "items": [
        {
            "metadata": {},
            "versions": [
                {
                    "version": "v1",
                    "resources": [
                        {"resource": "pods", "singularResource": "pod", "scope": "Namespaced", "shortNames": ["po"]},
                        {"resource": "events", "singularResource": "event", "scope": "Namespaced"},
                        {"resource": "nodes", "singularResource": "node", "scope": "Cluster"},
                    ],
                }
            ],
        }
    ]
}
GROUPS = {
    "items": [
        {
            "metadata": {"name": "events.k8s.io"},
            "versions": [
                {"version": "v1", "resources": [{"resource": "events", "scope": "Namespaced", "shortNames": ["pods"]}]},
                {"version": "v1beta1", "resources": [{"resource": "old", "scope": "Namespaced"}]},
            ],
        }
    ]
}


class WordsTests(SynchronousTestCase):
    """The words behind ``kubectl get``."""

    def test_understood(self) -> None:
        """One kind, a name or none, a namespace or all, a selector, in any order."""
        for args, question in (
            (["pods"], Question("pods")),
            (["pod", "web", "-n", "shop"], Question("pod", "web", "shop")),
            (["secret", "-n", "shop", "key"], Question("secret", "key", "shop")),
            (["pods", "-A", "-l", "app=web"], Question("pods", "", "", "app=web")),
        ):
            self.assertEqual(understood(args), question)

    def test_left_to_kubectl(self) -> None:
        """All else is not: several kinds or names, other options, what kubectl refuses."""
        for line in (
            "",
            "pods,services",
            "pod/web",
            "pod web api",
            "pods --raw=/x",
            "pod web -w",
            "events --field-selector=a=b",
            "pod web -l app=web",
            "pod web -A",
        ):
            self.assertIsNone(understood(line.split()), line)
        self.assertIsNone(understood(["pods", ""]))

    def test_paths(self) -> None:
        """A namespace counts where the kind has one, and a selector is made fit for an address."""
        pods, nodes = Kind("/api/v1", "pods", True), Kind("/api/v1", "nodes", False)
        for question, kind, path in (
            (Question("pods"), pods, "/api/v1/namespaces/default/pods"),
            (Question("pods", namespace=""), pods, "/api/v1/pods"),
            (Question("pod", "web", "shop"), pods, "/api/v1/namespaces/shop/pods/web"),
            (Question("node", "one", "shop"), nodes, "/api/v1/nodes/one"),
            (Question("nodes", selector="a in (b, c)"), nodes, "/api/v1/nodes?labelSelector=a%20in%20%28b%2C%20c%29"),
        ):
            self.assertEqual(question.path(kind), path)


class AnswersTests(SynchronousTestCase):
    """What API servers say."""

    def test_kinds(self) -> None:
        """Of kinds with the same name the first counts, the preferred version alone, and whole names go first."""
        found = kinds(CORE, GROUPS)
        self.assertEqual(found["pods"], Kind("/api/v1", "pods", True))
        self.assertEqual(found["po"], found["pod"])
        self.assertEqual(found["node"], Kind("/api/v1", "nodes", False))
        self.assertEqual(found["events"].base, "/api/v1")
        self.assertEqual(found["events.events.k8s.io"].base, "/apis/events.k8s.io/v1")
        self.assertNotIn("old", found)

    def test_lists(self) -> None:
        """Each object of a list says what it is, and who wrote which field is left out."""
        item = {"metadata": {"name": "web", "managedFields": [1]}, "spec": {}}
        listed = as_kubectl({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [item]})
        shown = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {}}
        self.assertEqual(listed, {"apiVersion": "v1", "kind": "List", "items": [shown]})

    def test_one(self) -> None:
        """A single object is as it is, without who wrote which field."""
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "managedFields": [1]}}
        self.assertEqual(as_kubectl(body), {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}})

    def test_nobody_there(self) -> None:
        """Where there is no network to ask in, kubectl is to be asked itself."""
        self.assertIsNone(Asker("192.0.2.1", "liqod-no-such-network", Path("/nonexistent")).get(["pods"]))
