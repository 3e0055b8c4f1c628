"""The archive for a problem report: secrets that are planted in every field do not get into it."""

from __future__ import annotations

import io
import json
import tarfile
from datetime import UTC, datetime
from fnmatch import fnmatch
from typing import Any

from twisted.internet import reactor
from twisted.trial.unittest import SynchronousTestCase, TestCase
from twisted.web.server import Site
from twisted.web.static import Data

from liqod.cli.setup.archive.daemon_pages import open_port
from liqod.cli.setup.archive.gather import (
    HOST,
    MOST_BYTES,
    Archive,
    as_list,
    command_output,
    settings_text,
    summary,
    tail,
)
from liqod.cli.setup.archive.redact import FIELDS, allowed, left_out, scrubbed
from liqod.cli.setup.host.wanted import ROLES
from liqod.cli.status.first_screen import FirstScreen
from liqod.config.schema import MetricsSettings
from liqod.fabric.agent.kernel import host
from liqod.kube import manifests
from liqod.kube.resources import LEASES, PODS
from liqod.model.diagnosis.cluster import ClusterRecords
from tests.cli.cluster_case import ClusterCase

REACTOR: Any = reactor
SECRETS = (
    "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg\n-----END PRIVATE KEY-----",
    "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJlLWlzLWhlcmU",
    "liqo1.eyJpZCI6IjBhMWIyYzNkIn0",
    "Bearer abcdef0123456789",
    "password=hunter22",
    "token: s3cr3tvalue",
    "https://admin:hunter22@api.example.com/",
    "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk1aAbB",
)
MARKS = (
    "MIGHAgEAMBMGByqGSM49", "c2lnbmF0dXJl", "eyJpZCI6", "abcdef0123456789", "hunter22", "s3cr3tvalue", "yAnz5TF",
)  # fmt: skip
HIDDEN = "in-a-field-that-is-not-allowed"


def planted(schema: dict[str, Any], text: str) -> Any:
    """Return an object with a text in every field that a schema has."""
    kind = schema.get("type")
    if kind == "object":
        found = {name: planted(inside, text) for name, inside in (schema.get("properties") or {}).items()}
        if isinstance(schema.get("additionalProperties"), dict):
            # A map of names, such as those of namespaces: its keys are not fields.
            return {"some-key": planted(schema["additionalProperties"], text)}
        return {**found, "unknownField": HIDDEN}
    if kind == "array":
        return [planted(schema.get("items") or {}, text)] * 2
    return text


class RedactionTests(SynchronousTestCase):
    """What is kept of objects."""

    def test_planted_in_every_field(self) -> None:
        """A secret in any field of any record, however deep, is not kept; nor is a field that nobody thought of."""
        metadata = {"name": "one", "labels": {"a": HIDDEN}, "annotations": {"a": HIDDEN}, "managedFields": [HIDDEN]}
        seen = set()
        for definition in manifests.definitions():
            kind = definition["spec"]["names"]["kind"]
            if kind not in FIELDS:
                continue
            seen.add(kind)
            for text in SECRETS:
                body = planted(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"], text)
                body["metadata"] = metadata
                kept = json.dumps(allowed(body, FIELDS[kind]))
                for mark in (*MARKS, HIDDEN):
                    self.assertNotIn(mark, kept, (kind, text))
        self.assertGreaterEqual(len(seen), 14)

    def test_pods(self) -> None:
        """Of a pod neither containers nor environment nor volumes are kept, only that there were some."""
        container = {"name": "x", "env": [{"name": "KEY", "value": HIDDEN}], "command": [HIDDEN], "image": HIDDEN}
        body = {"metadata": {"name": "web"}, "spec": {"nodeName": "n", "containers": [container], "volumes": [HIDDEN]}}
        self.assertEqual(allowed(body, FIELDS["Pod"]), {"metadata": {"name": "web"}, "spec": {"nodeName": "n"}})
        self.assertEqual(left_out(body, FIELDS["Pod"]), {"spec.containers", "spec.volumes"})

    def test_texts(self) -> None:
        """Texts are scrubbed, and what is no secret stays readable."""
        for text in SECRETS:
            for mark in MARKS:
                self.assertNotIn(mark, scrubbed(f"before {text} after"))
            self.assertIn("before ", scrubbed(f"before {text} after"))
        plain = "no answer from 192.0.2.1:5872; namespace shop-rome-e417 of pod web-5d9c7b8f6-x2x9z"
        self.assertEqual(scrubbed(plain), plain)

    def test_settings(self) -> None:
        """Of the settings only numbers and switches are kept."""
        text = settings_text({"peering": {"autojoin": True, "port": 5, "key": HIDDEN, "listen": [HIDDEN]}})
        self.assertEqual(json.loads(text), {"peering": {"autojoin": True, "port": 5}})


class ClusterTests(ClusterCase):
    """What is gathered from the cluster."""

    async def test_gather_of_another_namespace(self) -> None:
        """gather has the lease of the namespace that the settings name."""
        config = self.kubeconfig.with_name("liqod.toml")
        config.write_text('[kubernetes]\nnamespace = "infra"\n')
        await self.liqodctl("install", "--config", str(config))
        await self.client.create(LEASES, {"metadata": {"name": "liqod"}, "spec": {"holderIdentity": "gw-1"}}, "infra")
        archive = self.kubeconfig.with_name("archive.tar.gz")
        await self.liqodctl("gather", "--config", str(config), "--file", str(archive))
        with tarfile.open(archive) as tar:
            (member,) = (one for one in tar.getmembers() if "/leases" in one.name)
            leases = tar.extractfile(member)
            assert leases is not None
            self.assertEqual([one["spec"]["holderIdentity"] for one in json.load(leases)], ["gw-1"])


class DaemonTests(ClusterCase):
    """What is gathered from the daemons."""

    async def files(self, *arguments: str) -> dict[str, str]:
        """Return the files of an archive by their names without its first folder."""
        archive = self.kubeconfig.with_name("archive.tar.gz")
        await self.liqodctl("gather", "--file", str(archive), *arguments)
        found = {}
        with tarfile.open(archive) as tar:
            for member in tar.getmembers():
                file = tar.extractfile(member)
                assert file is not None
                found[member.name.partition("/")[2]] = file.read().decode()
        return found

    async def test_pods(self) -> None:
        """Where daemons are pods their logs are there, those before a restart as well, without secrets."""
        await self.liqodctl("install")
        asked = []

        def read_log(request: Any, key: Any, query: dict[str, str]) -> None:
            asked.append((key[1], query))
            request.write(f"log of {query['container']} {SECRETS[0]}\n".encode())
            request.finish()

        self.cluster.server.read_log = read_log
        ports = [{"name": "metrics", "containerPort": 5874}]
        spec = {
            "containers": [{"name": "daemon", "image": HIDDEN, "ports": ports, "env": [{"name": "A", "value": HIDDEN}]}]
        }
        labels = {"app.kubernetes.io/name": "liqod"}
        metadata = {"name": "liqod-1", "namespace": "liqo-system", "labels": labels}
        await self.client.create(PODS, {"metadata": metadata, "spec": spec}, "liqo-system")
        ended = {"terminated": {"reason": "OOMKilled", "exitCode": 137, "message": HIDDEN}}
        state = {"name": "daemon", "restartCount": 2, "lastState": ended}
        await self.client.patch(
            PODS, "liqod-1", {"status": {"containerStatuses": [state]}}, "liqo-system", subresource="status"
        )
        found = await self.files()
        self.assertEqual(
            [(name, query["container"], query.get("previous", "")) for name, query in asked],
            [("liqod-1", "daemon", ""), ("liqod-1", "daemon", "true")],
        )
        for name in ("daemon.log", "daemon-before.log"):
            self.assertIn("log of daemon <removed>", found[f"pods/liqod-1/{name}"])
        (pod,) = json.loads(found["cluster/liqod-pods.json"])
        (container,) = pod["status"]["containerStatuses"]
        self.assertEqual(container["lastState"], {"terminated": {"reason": "OOMKilled", "exitCode": 137}})
        self.assertIn("pods/liqod-1/metrics.txt: ", found["LEFT-OUT.txt"])
        everything = "\n".join(found.values())
        self.assertEqual([mark for mark in (*MARKS, HIDDEN) if mark in everything], [])

    async def test_pages_of_this_host(self) -> None:
        """The pages of a daemon on this host are there, where they are for everybody on it; else it is said."""
        page = Data(b"liqod_up 1\n# token: s3cr3tvalue\n", "text/plain")
        page.isLeaf = True
        listening = REACTOR.listenTCP(0, Site(page), interface="127.0.0.1")
        self.addCleanup(listening.stopListening)
        await self.liqodctl("install")
        config = self.kubeconfig.with_name("liqod.toml")
        config.write_text(f'[metrics]\nlisten = "tcp:{listening.getHost().port}:interface=127.0.0.1"\n')
        found = await self.files("--config", str(config))
        self.assertEqual(found["host/metrics.txt"], "liqod_up 1\n# <removed>\n")
        self.assertEqual(found["host/readyz.txt"], found["host/metrics.txt"])

    def test_open_port(self) -> None:
        """A page that takes a certificate or a token is not asked for, nor one of a socket."""
        for settings, port in (
            (MetricsSettings(), 5874),
            (MetricsSettings(listen="tcp:99"), 99),
            (MetricsSettings(listen=""), None),
            (MetricsSettings(listen="unix:/run/x"), None),
            (MetricsSettings(tls="own"), None),
            (MetricsSettings(authentication="token"), None),
        ):
            self.assertEqual(open_port(settings), port, settings)


class HostTests(TestCase):
    """What is gathered from the host."""

    timeout = 10

    async def test_slow_program(self) -> None:
        """A program that does not end is killed, and that is noted."""
        self.patch(host, "DEADLINE", 0.2)
        archive = Archive("one")
        text = await command_output(host.HostKernel(REACTOR), archive, "slow", ("sleep", "3600"))
        self.assertEqual((text, archive.omitted), ("", {"host/slow: sleep 3600 took longer than 0.2 s and was killed"}))

    async def test_missing_program(self) -> None:
        """A program that is not there is noted; the errors of one that fails are kept."""
        archive, kernel = Archive("one"), host.HostKernel(REACTOR)
        self.assertEqual(await command_output(kernel, archive, "none", ("no-such-program",)), "")
        self.assertEqual(archive.omitted, {"host/none: the program no-such-program is not installed; install it"})
        failed = await command_output(kernel, archive, "failed", ("ls", "/nonexistent", "/dev/null"))
        self.assertIn("/dev/null\n", failed)
        self.assertIn("No such file", failed)

    def test_units(self) -> None:
        """Log and state are those of each unit of ours, whatever roles the host has."""
        commands = dict(HOST)
        for unit in [*ROLES.values(), "liqod-tunnel@all.service", "liqod-network-tunnel@all.service"]:
            for name in ("log", "service"):
                self.assertTrue(any(fnmatch(unit, word) for word in commands[name][1:]), (name, unit))


class ArchiveTests(SynchronousTestCase):
    """The archive itself."""

    def test_bounded(self) -> None:
        """A file that is too large is cut, and that is noted."""
        archive = Archive("one")
        archive.add("log.txt", "x" * (MOST_BYTES + 5))
        archive.add("SUMMARY.md", summary(FirstScreen(ClusterRecords()), datetime.now(UTC)))
        with tarfile.open(fileobj=io.BytesIO(archive.close())) as tar:
            self.assertEqual([one.name for one in tar.getmembers()], ["one/log.txt", "one/SUMMARY.md"])
            self.assertEqual(tar.getmembers()[0].size, MOST_BYTES)
            page = tar.extractfile("one/SUMMARY.md")
            assert page is not None
            self.assertIn(b"NoDaemon", page.read())
        self.assertEqual(archive.omitted, {"log.txt: the last 5 bytes"})

    def test_newest_of_a_log(self) -> None:
        """Of a log that is too large the newest lines are kept, whole ones."""
        lines = [f"{number:07} something happened" for number in range(MOST_BYTES // 20)]
        archive = Archive("one")
        archive.add("host/log.txt", "\n".join(lines) + "\n", newest=True)
        with tarfile.open(fileobj=io.BytesIO(archive.close())) as tar:
            member = tar.extractfile("one/host/log.txt")
            assert member is not None
            kept = member.read().decode().splitlines()
        self.assertEqual(kept, lines[-len(kept) :])
        size = len(lines[0]) + 1
        self.assertGreater(len(kept) * size, MOST_BYTES - size)
        (omitted,) = archive.omitted
        self.assertEqual(omitted, f"host/log.txt: the first {size * (len(lines) - len(kept))} bytes")

    def test_tail(self) -> None:
        """A line is cut only where no whole one fits."""
        for data, most, wanted in (
            (b"one\ntwo\n", 8, b"one\ntwo\n"),
            (b"one\ntwo\n", 7, b"two\n"),
            (b"one\ntwo\n", 4, b"two\n"),
            (b"one\ntwo\n", 3, b"wo\n"),
            (b"onetwo", 3, b"two"),
        ):
            self.assertEqual(tail(data, most), wanted, (data, most))

    def test_whole_documents(self) -> None:
        """A list that is too large has fewer items, and is a document still; how many there are is said."""
        items = [{"name": f"web-{number}", "message": "ä" * 50} for number in range(100)]
        for most in (10, 200, 5000, 1 << 20):
            text, count = as_list(items, most)
            self.assertEqual(json.loads(text), items[:count])
            self.assertLessEqual(len(text.encode()), max(most, len("[\n\n]\n")))
            self.assertEqual(count == len(items), most == 1 << 20)
        self.assertEqual(json.loads(as_list([], 100)[0]), [])
