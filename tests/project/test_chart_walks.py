"""What the walks with Helm on real clusters compute of what they see, and what their registry answers."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.real import readme
from tests.real.chart.listing import Listing, of_host
from tests.real.chart.under_load import echoed, ledger
from tests.testbed import image_registry
from tests.testbed.image import add_file


def pod(restarts: int = 0, container: str = "containerd://1") -> dict[str, Any]:
    """Return a pod with one container that runs."""
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    status = {"containerID": container, "restartCount": restarts, "state": state}
    return {"metadata": {"uid": "u"}, "status": {"containerStatuses": [status]}}


class WalkTests(SynchronousTestCase):
    """Ledgers, numbers that came back, lists."""

    def test_ledger(self) -> None:
        """A container that was started again, or replaced, is another entry."""
        before = ledger({"web": pod()})
        self.assertEqual(ledger({"web": pod()}), before)
        self.assertNotEqual(ledger({"web": pod(restarts=1)}), before)
        self.assertNotEqual(ledger({"web": pod(container="containerd://2")}), before)

    def test_echoed(self) -> None:
        """The longest pause is between two numbers; a line that is not whole does not count."""
        numbers, pause = echoed("0 10.00\n1 10.10\n2 11.60\n3 11.7")
        self.assertEqual(numbers, [0, 1, 2])
        self.assertAlmostEqual(pause, 1.5)
        self.assertEqual(echoed(""), ([], 0.0))

    def test_difference(self) -> None:
        """What is gone and what came are apart."""
        before, after = Listing(frozenset("ab")), Listing(frozenset("bc"))
        self.assertEqual(before.difference(after), (frozenset("a"), frozenset("c")))

    def test_host(self) -> None:
        """What the first pods of a node bring is left out; what liqod would leave is not."""
        lines = ["device veth1", "device cni0", "device liqod", "table inet liqod", "table ip nat", "", " x "]
        lines += ["ipv4/conf/veth1/rp_filter:0", "ipv4/conf/all/rp_filter:2"]
        kept = {"device liqod", "table inet liqod", "x", "ipv4/conf/all/rp_filter:2"}
        self.assertEqual(of_host(lines), kept)

    def test_lines_of_the_readme(self) -> None:
        """A line that goes on in the next one is one line; by Helm there are three."""
        self.assertEqual(readme.joined(["a \\", "b", "c"]), ["a b", "c"])
        self.assertEqual(len(readme.joined(readme.lines_of(readme.BY_HELM))), 3)


class RegistryTests(SynchronousTestCase):
    """What nodes pull is what was added."""

    def test_pulled(self) -> None:
        """An image of docker's format is found by its tag and by digests, with the command that was given."""
        folder = Path(self.mktemp())
        folder.mkdir()
        archive = folder / "image.tar"
        described = [{"Config": "config.json", "RepoTags": ["x:1"], "Layers": ["layer.tar"]}]
        with tarfile.open(archive, "w") as tar:
            add_file(tar, "manifest.json", json.dumps(described).encode())
            add_file(tar, "config.json", json.dumps({"config": {"Cmd": ["sh"]}}).encode())
            add_file(tar, "layer.tar", b"layer")
        image_registry.add_docker(folder, archive, "library/web:1", ["serve"])
        asked = image_registry.found(folder, "/v2/library/web/manifests/1?ns=docker.io")
        assert asked is not None
        digest, content = asked
        self.assertEqual(image_registry.found(folder, f"/v2/library/web/manifests/{digest}"), asked)
        manifest = json.loads(content)
        config = image_registry.found(folder, f"/v2/library/web/blobs/{manifest['config']['digest']}")
        assert config is not None
        self.assertEqual(json.loads(config[1])["config"]["Cmd"], ["serve"])
        layer = image_registry.found(folder, f"/v2/library/web/blobs/{manifest['layers'][0]['digest']}")
        self.assertEqual(layer and layer[1], b"layer")

    def test_others(self) -> None:
        """What was not added is not there, nor is a file beside."""
        folder = Path(self.mktemp())
        (folder / "tags").mkdir(parents=True)
        (folder / "secret").write_text("x")
        for path in ("/v2/web/manifests/1", "/v2/web/blobs/secret", "/v2/web/blobs/../secret", "/secret"):
            self.assertIsNone(image_registry.found(folder, path), path)
