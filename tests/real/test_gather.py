"""``liqodctl gather`` on two clusters with a thousand offloaded pods: soon, small, and without what was planted."""

from __future__ import annotations

import atexit
import io
import json
import tarfile
import time
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from twisted.trial.unittest import SynchronousTestCase

from tests.cli.setup.test_gather import HIDDEN, MARKS, SECRETS
from tests.real.base import require_clusters
from tests.real.daemons import Daemon
from tests.real.path import (
    NAMESPACE,
    deployment,
    enabled_namespace,
    eventually,
    node_ready,
    peer_of,
    trust_each_other,
)
from tests.testbed.testbed import Testbed

PODS: Final = 1000
SECONDS: Final = 30.0
BYTES: Final = 20_000_000
WITHIN: Final = 900.0
APP: Final = "many"
PLANTED: Final = " ".join(SECRETS)
SHARING: Final = "\n[sharing]\npercentage = 100\n"
EVENTS: Final = 20


def planted_deployment() -> dict[str, Any]:
    """Return the pods, with secrets wherever a user can write something that is carried along."""
    body = deployment(APP, PODS)
    template = body["spec"]["template"]
    template["metadata"]["annotations"] = {"example.com/note": f"{HIDDEN} {PLANTED}"}
    container = template["spec"]["containers"][0]
    container["command"] = ["sh", "-c", f": {HIDDEN}; : {SECRETS[4]}; sleep 3600"]
    container["resources"] = {"requests": {"cpu": "1m", "memory": "1Mi"}}
    container["env"] = [{"name": f"SECRET_{number}", "value": text} for number, text in enumerate((HIDDEN, *SECRETS))]
    return body


def planted_objects() -> list[dict[str, Any]]:
    """Return objects of the namespace that have secrets in them, and events of the daemon that name some."""
    place = {"namespace": NAMESPACE, "annotations": {"example.com/note": f"{HIDDEN} {PLANTED}"}}
    texts = {"hidden": HIDDEN, "planted": PLANTED}
    found: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**place, "name": "planted"}, "data": texts},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {**place, "name": "planted"}, "stringData": texts},
    ]
    found += [
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {**place, "name": f"planted-{number}"},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "web", "namespace": NAMESPACE},
            "type": "Warning",
            "reason": "OffloadingBackOff",
            "message": f"the lender said: {SECRETS[number % len(SECRETS)]}",
            "reportingComponent": "liqod",
            "reportingInstance": "planted",
            "source": {"component": "liqod"},
        }
        for number in range(EVENTS)
    ]
    return found


def contents(archive: Path) -> dict[str, str]:
    """Return the files of an archive by their names without its first folder."""
    with tarfile.open(fileobj=io.BytesIO(archive.read_bytes())) as tar:
        found = {}
        for member in tar.getmembers():
            file = tar.extractfile(member)
            assert file is not None, member.name
            found[member.name.partition("/")[2]] = file.read().decode()
        return found


class GatherTests(SynchronousTestCase):
    """rome's pods are at milan, on a node that is made up; the steps run in the order of their names."""

    _testbed: ClassVar[Testbed | None] = None
    daemons: ClassVar[dict[str, Daemon]] = {}

    def setUp(self) -> None:
        cls = GatherTests
        if cls._testbed is None:
            require_clusters()
            cls._testbed = Testbed(2, nodes=False, kwok=1, qps=500)
            atexit.register(cls._testbed.stop)
            cls._testbed.start()
            cls.daemons = {
                name: Daemon(cls._testbed[number], name, extra=SHARING)
                for number, name in enumerate(("rome", "milan"), 1)
            }
            for daemon in cls.daemons.values():
                daemon.start()

    def test_1_a_thousand_pods(self) -> None:
        """A thousand pods of rome's are Ready at milan."""
        rome, milan = self.daemons.values()
        trust_each_other(rome, milan)
        eventually("the virtual node is Ready", partial(node_ready, rome.cluster))
        # Of every record of a peer as well, in a field that anybody may write.
        for daemon, other in ((rome, milan), (milan, rome)):
            name = peer_of(daemon.cluster, other.name)["metadata"]["name"]
            daemon.cluster.kubectl("annotate", "fc", name, f"example.com/note={HIDDEN} {SECRETS[4]}")
        rome.cluster.apply(enabled_namespace(), *planted_objects(), planted_deployment())
        wanted = f"--for=jsonpath={{.status.readyReplicas}}={PODS}"
        words = ("wait", "-n", NAMESPACE, f"deployment/{APP}", wanted, f"--timeout={WITHIN:.0f}s")
        rome.cluster.kubectl(*words, timeout=WITHIN + 20)

    def test_2_gather(self) -> None:
        """On both sides the archive takes less than 30 s and 20 MB, has every pod, and nothing that was planted."""
        for daemon, file in ((self.daemons["rome"], "pods"), (self.daemons["milan"], "shadowpods")):
            target = daemon.directory / "archive.tar.gz"
            begin = time.monotonic()
            said = daemon.liqodctl("gather", "-o", "json", f"--file={target}", f"--config={daemon.config}")
            took = time.monotonic() - begin
            size, found = target.stat().st_size, contents(target)
            print(f"\n{daemon.name}: {took:.1f} s, {size} bytes, {len(found)} files")
            self.assertLess(took, SECONDS)
            self.assertLess(size, BYTES)
            document = json.loads(said)
            self.assertEqual(document["bytes"], size)
            self.assertEqual([one for one in document["leftOut"] if "the last" in one], [], "something was cut off")
            (listed,) = [text for name, text in found.items() if name.partition("/")[2].startswith(file)]
            self.assertEqual(len(json.loads(listed)), PODS)
            everything = "\n".join(found.values())
            self.assertEqual([mark for mark in (*MARKS, HIDDEN) if mark in everything], [])
            self.assertIn("LEFT-OUT.txt", found)
            self.assertIn("liqod_build_info", found["host/metrics.txt"], found["LEFT-OUT.txt"])
            for name in (
                "host/readyz.txt",
                "host/rules.txt",
                "cluster/networkgateways.json",
                "cluster/clusterfacts.json",
            ):
                self.assertIn(name.partition(".")[0], {one.partition(".")[0] for one in found})

    def test_3_events_are_there(self) -> None:
        """The planted events are in rome's archive, each without its secret: nothing was missed by being left out."""
        found = contents(self.daemons["rome"].directory / "archive.tar.gz")
        (listed,) = [text for name, text in found.items() if name.partition("/")[2].startswith("events")]
        messages = [one["message"] for one in json.loads(listed) if "the lender said" in one.get("message", "")]
        self.assertEqual(len(messages), EVENTS)
        self.assertTrue(all("<removed>" in one for one in messages), messages)

    def test_4_end(self) -> None:
        """The daemons end in order."""
        for daemon in self.daemons.values():
            daemon.stop()
