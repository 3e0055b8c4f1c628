"""Tests of liqod.kube.connection.config, transport's TLS and manifests."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.server import Request

from liqod.kube import manifests
from liqod.kube.connection import transport
from liqod.kube.connection.config import ClientConfig, ConfigError, TokenFile, from_grant, load
from liqod.kube.connection.transport import MAX_CHAIN, tls_creator
from liqod.kube.errors import Forbidden, LaterRelease, ManagedElsewhere
from liqod.model.diagnosis.releases import VERSION_LABEL
from liqod.model.names import FIELD_MANAGER
from tests.kube.cases import Answer, memory_client, status


class ConfigTests(SynchronousTestCase):
    """Kubeconfig files and tokens."""

    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        for name in ("KUBERNETES_SERVICE_HOST", "KUBECONFIG"):
            self.patch(os, "environ", {key: value for key, value in os.environ.items() if key != name})

    def kubeconfig(self, user: dict[str, Any], **cluster: Any) -> str:
        path = self.folder / "config"
        path.write_text(
            json.dumps(
                {
                    "current-context": "one",
                    "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443/", **cluster}}],
                    "users": [{"name": "u", "user": user}, {"name": "v", "user": {"token": "of-v"}}],
                    "contexts": [
                        {"name": "one", "context": {"cluster": "c", "user": "u"}},
                        {"name": "two", "context": {"cluster": "c", "user": "v"}},
                    ],
                }
            )
        )
        return str(path)

    def test_embedded_certificates_are_read(self) -> None:
        """CA, client certificate and key come out as PEM, and none of them shows in ``repr``."""
        encode = lambda text: base64.b64encode(text).decode()  # noqa: E731
        path = self.kubeconfig(
            {"client-certificate-data": encode(b"CERT"), "client-key-data": encode(b"KEY")},
            **{"certificate-authority-data": encode(b"CA"), "tls-server-name": "api.test"},
        )
        config = load(path)
        self.assertEqual(
            (config.server, config.ca_pem, config.client_cert_pem, config.client_key_pem, config.tls_server_name),
            ("https://10.0.0.1:6443", b"CA", b"CERT", b"KEY", "api.test"),
        )
        self.assertNotIn("KEY", repr(config))

    def test_a_context_is_chosen(self) -> None:
        """Another context brings another user."""
        config = load(self.kubeconfig({"token": "of-u"}), "two")
        assert config.token is not None
        self.assertEqual(config.token(), "of-v")

    def test_a_pod_that_names_a_context_means_a_kubeconfig(self) -> None:
        """In a pod its own account counts only where neither a file nor a context is named."""
        inside = {"KUBERNETES_SERVICE_HOST": "10.9.9.9", "KUBECONFIG": self.kubeconfig({})}
        self.patch(os, "environ", {**os.environ, **inside})
        config = load("", "two")
        assert config.token is not None
        self.assertEqual((config.server, config.token()), ("https://10.0.0.1:6443", "of-v"))
        self.assertEqual(load(self.kubeconfig({"token": "of-u"})).server, "https://10.0.0.1:6443")

    def test_a_token_file_is_found_beside_the_kubeconfig(self) -> None:
        """A relative token file is relative to the kubeconfig, and renewable."""
        (self.folder / "token").write_text("abc\n")
        config = load(self.kubeconfig({"tokenFile": "token"}))
        assert config.token is not None and config.renew_token is not None
        self.assertEqual(config.token(), "abc")
        (self.folder / "token").write_text("def\n")
        self.assertEqual(config.token(), "abc")
        config.renew_token()
        self.assertEqual(config.token(), "def")

    def test_an_exec_plugin_gives_and_renews_the_token(self) -> None:
        """The plugin's token is used, and renewing runs the plugin again."""
        script = self.folder / "plugin"
        counter = self.folder / "count"
        credential = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t%s"}}'
        script.write_text(f"#!/bin/sh\necho x >> {counter}\nprintf '{credential}' $(wc -l < {counter})\n")
        script.chmod(0o755)
        config = load(
            self.kubeconfig(
                {
                    "exec": {
                        "apiVersion": "client.authentication.k8s.io/v1",
                        "command": str(script),
                        "interactiveMode": "Never",
                    }
                }
            )
        )
        assert config.token is not None and config.renew_token is not None
        first = config.token()
        config.renew_token()
        self.assertTrue(first.startswith("t") and config.token().startswith("t"))
        self.assertNotEqual(config.token(), first)
        self.assertTrue(config.renewal_blocks)

    def apart(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Have a new process load a configuration apart; it prints server and token, and ends with 1 on kubernetes."""
        program = (
            "import sys; from liqod.kube.connection.config import ConfigError, load\n"
            "try: config = load(*sys.argv[1:], apart=True)\n"
            "except ConfigError as error: sys.exit(f'refused: {error}')\n"
            "print(config.server, config.token and config.token(), config.renewal_blocks)\n"
            "sys.exit('kubernetes' in sys.modules)"
        )
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_another_process_reads_it(self) -> None:
        """What is read apart is the same, and the process that asks has not imported what reads it."""
        path = self.kubeconfig({"token": "of-u"})
        for context, token in (("", "of-u"), ("two", "of-v")):
            done = self.apart(path, context)
            self.assertEqual((done.returncode, done.stdout), (0, f"https://10.0.0.1:6443 {token} True\n"), done.stderr)
        done = self.apart(path, "three")
        self.assertIn(f"refused: the kubeconfig {path} cannot be used: ", done.stderr)
        self.assertIn("three", done.stderr)

    def test_a_process_that_cannot_read(self) -> None:
        """Where the other process cannot be started, or says nothing, that is said and nothing of what it wrote."""
        path = self.kubeconfig({"token": "of-u"})
        for program, why in (("/nowhere/python", "FileNotFoundError"), ("/bin/echo", "DecodeError")):
            self.patch(sys, "executable", program)
            error = self.assertRaises(ConfigError, load, path, apart=True)
            self.assertEqual(str(error), f"the kubeconfig {path} cannot be read in a process of its own: {why}")

    def test_a_token_that_was_read_apart_is_renewed(self) -> None:
        """It is read again by another process, for which a thread waits."""
        path = self.kubeconfig({"token": "first"})
        config = load(path, apart=True)
        assert config.token is not None and config.renew_token is not None
        self.assertTrue(config.renewal_blocks)
        file = Path(path)
        file.write_text(file.read_text().replace("first", "second"))
        config.renew_token()
        self.assertEqual(config.token(), "second")

    def test_what_is_missing_is_said(self) -> None:
        """A missing file, a missing context, a missing certificate file each give one sentence."""
        self.assertIn("no kubeconfig at /nowhere", str(self.assertRaises(ConfigError, load, "/nowhere")))
        path = self.kubeconfig({})
        self.assertIn("three", str(self.assertRaises(ConfigError, load, path, "three")))
        path = self.kubeconfig({"client-certificate": "/nowhere/c.pem"})
        self.assertIn("/nowhere/c.pem", str(self.assertRaises(ConfigError, load, path)))

    def test_a_replaced_token_counts(self) -> None:
        """A token that is written again into the kubeconfig is used once the old one is no longer taken."""
        path = self.kubeconfig({"token": "first"})
        config = load(path)
        assert config.token is not None and config.renew_token is not None
        self.assertEqual(config.token(), "first")
        file = Path(path)
        file.write_text(file.read_text().replace("first", "second"))
        self.assertEqual(config.token(), "first")
        config.renew_token()
        self.assertEqual(config.token(), "second")
        self.assertNotIn("second", repr(config))

    def test_a_password_is_no_token(self) -> None:
        """A user with name and password is refused in a sentence, without the password; it is not sent as a token."""
        path = self.kubeconfig({"username": "admin", "password": "secret"})
        error = self.assertRaises(ConfigError, load, path)
        self.assertIn("password", str(error))
        self.assertNotIn("secret", str(error))

    def test_a_broken_file_is_reported(self) -> None:
        """What is no YAML, names nothing, or holds no base64 gives one sentence that quotes no secret."""
        file = self.folder / "broken"
        for text in ("{", "", "a: b", "{current-context: x, contexts: [3, {name: x, context: {cluster: y}}]}"):
            file.write_text(text)
            self.assertIn(str(file), str(self.assertRaises(ConfigError, load, str(file))), text)
        error = self.assertRaises(ConfigError, load, self.kubeconfig({"client-key-data": "s3cret!"}))
        self.assertNotIn("s3cret", str(error))

    def test_a_token_is_read_once_a_minute(self) -> None:
        """The file is not read at every use; while it is gone the last token is used."""
        path, now = self.folder / "token", [0.0]
        token = TokenFile(path, lambda: now[0])
        self.assertRaises(ConfigError, token)
        path.write_text("one")
        self.assertEqual(token(), "one")
        path.write_text("two")
        now[0] = 59.0
        self.assertEqual(token(), "one")
        now[0] = 61.0
        self.assertEqual(token(), "two")
        path.unlink()
        now[0] = 130.0
        self.assertEqual(token(), "two")

    def test_bad_certificates_are_reported_without_their_content(self) -> None:
        """A CA bundle or a key that cannot be used is a ConfigError that quotes no secret."""
        for config in (
            ClientConfig("https://a", ca_pem=b"nothing"),
            ClientConfig("https://a", client_cert_pem=b"s3cret", client_key_pem=b"s3cret"),
        ):
            error = self.assertRaises(ConfigError, tls_creator, config, "a")
            self.assertNotIn("s3cret", str(error))

    def test_closing_that_is_cancelled(self) -> None:
        """It is a cancellation for who waits, not a failure of one of the connections."""
        connections = transport.Connections(ClientConfig("https://a"), MemoryReactorClock())
        idle = cast(Any, SimpleNamespace(abort=Deferred))
        connections._pool._connections = {"key": [idle]}
        closed = connections.close()
        closed.cancel()
        self.failureResultOf(closed, CancelledError)

    def test_a_server_shows_few_certificates(self) -> None:
        """Of a longer chain, which costs a signature each, nothing is verified; of a handshake 20 KiB are read."""
        creator: Any = tls_creator(ClientConfig("https://a"), "a")
        self.assertEqual(creator._createConnection.__self__.getContext().get_verify_depth(), MAX_CHAIN)
        sent = StringTransport()

        class Connected:
            def __init__(self, *_: object, **__: object) -> None:
                pass

            def connect(self, factory: Any) -> Deferred[Any]:
                protocol = factory.buildProtocol(None)
                protocol.makeConnection(sent)
                return succeed(protocol)

        self.patch(transport, "HostnameEndpoint", Connected)
        connections = transport.Connections(ClientConfig("https://a"), MemoryReactorClock())
        protocol: Any = self.successResultOf(connections.endpoint().connect(Factory.forProtocol(Protocol)))
        # A ServerHello of 60,000 bytes, in records of 16 KiB.
        hello = b"\x02\x00\xea\x60" + b"\x03\x03" + bytes(60_000)
        below: Any = protocol.transport
        for start in range(0, 32 << 10, 1 << 14):
            self.assertFalse(sent.disconnected)
            below.dataReceived(b"\x16\x03\x03\x40\x00" + hello[start : start + (1 << 14)])
        self.assertTrue(sent.disconnected)

    def test_a_grant_becomes_a_configuration(self) -> None:
        """URL, CA and token of a grant are what the client uses."""
        config = from_grant("https://10.0.0.1:6443/", b"CA", lambda: "t")
        self.assertEqual((config.server, config.token and config.token()), ("https://10.0.0.1:6443", "t"))


class ManifestTests(SynchronousTestCase):
    """The definitions and how they get to the cluster."""

    def setUp(self) -> None:
        self.clock = MemoryReactorClock()
        self.there: dict[str, Any] = {}
        self.writes: list[str] = []
        self.refusal: Answer = None
        self.established = True
        self.client, self.server = memory_client(self.answer, self.clock)

    def answer(self, request: Request) -> Answer:
        assert request.content is not None and request.path is not None
        name = request.path.decode().rpartition("/")[2]
        if request.method == b"GET":
            if name not in self.there:
                return (404, status(404, "NotFound"))
        else:
            if self.refusal:
                return self.refusal
            self.writes.append(name)
            self.there[name] = json.loads(request.content.read())
        conditions = [{"type": "Established", "status": "True"}] if self.established else None
        return (200, {**self.there[name], "status": {"conditions": conditions}})

    def ensure(self, **arguments: Any) -> Deferred[list[str]]:
        pending = Deferred.fromCoroutine(manifests.ensure(self.client, **arguments))
        self.server.flush()
        return pending

    def test_definitions_are_applied_once(self) -> None:
        """What is missing is applied; when nothing differs nothing is written."""
        names = [one["metadata"]["name"] for one in manifests.definitions()]
        self.assertIn("shadowpods.offloading.liqo.io", names)
        self.assertEqual(self.successResultOf(self.ensure()), names)
        self.assertEqual(self.successResultOf(self.ensure()), [])
        self.assertEqual(sorted(self.writes), names)

    def test_a_difference_is_applied_and_defaults_are_none(self) -> None:
        """Fields that the server added are no difference; a changed field is."""
        self.successResultOf(self.ensure())
        first = self.writes.pop(0)
        self.there[first]["spec"]["conversion"] = {"strategy": "None"}
        self.assertEqual(self.successResultOf(self.ensure()), [])
        self.there[first]["spec"]["names"]["kind"] = "Other"
        self.assertEqual(self.successResultOf(self.ensure()), [first])

    def test_it_waits_until_they_are_served(self) -> None:
        """The Deferred fires when all are established, and fails when that never happens."""
        self.established = False
        pending = self.ensure()
        self.assertNoResult(pending)
        self.established = True
        self.clock.advance(0.1)
        self.server.flush()
        self.successResultOf(pending)
        self.established = False
        pending = self.ensure()
        for _ in range(320):
            self.clock.advance(0.1)
            self.server.flush()
        self.failureResultOf(pending, manifests.NotEstablished)

    def written_by(self, release: str) -> str:
        """Have another release written one definition, with a field that this one does not know; return its name."""
        self.successResultOf(self.ensure(own="0.2.1"))
        name = self.writes[0]
        labels = {manifests.MANAGED_BY: FIELD_MANAGER, VERSION_LABEL: release}
        self.there[name]["metadata"]["labels"] = {key: value for key, value in labels.items() if value}
        self.there[name]["spec"]["names"]["shortNames"] = ["later"]
        self.writes.clear()
        return name

    def test_each_says_which_release_wrote_it(self) -> None:
        """It is this one, where it is installed and not merely checked out."""
        found = [one["metadata"]["labels"] for one in manifests.definitions()]
        self.assertEqual({one.get(VERSION_LABEL, "") for one in found}, {manifests.release()})

    def test_a_neighbouring_release_is_left_alone(self) -> None:
        """What the next minor release wrote stays, and a sentence says so; all others are as ever."""
        for release in ("0.2.2", "0.3.0", "0.3.9rc1"):
            name = self.written_by(release)
            said: list[str] = []
            self.assertEqual(self.successResultOf(self.ensure(own="0.2.1", kept=said.append)), [])
            self.assertEqual(self.writes, [])
            (sentence,) = said
            self.assertIn(
                f"{name} stays as liqod {release} wrote it, which is later than this release, 0.2.1", sentence
            )
            self.there.clear()

    def test_a_far_release_is_refused(self) -> None:
        """Nothing at all is written, not even what is missing, and the message has both releases and the ways out."""
        for release in ("0.4.0", "1.0.0"):
            name = self.written_by(release)
            missing = next(other for other in self.there if other != name)
            del self.there[missing]
            error = self.failureResultOf(self.ensure(own="0.2.1"), LaterRelease).value
            self.assertIn(f"{name} was written by liqod {release}, and this is 0.2.1", str(error))
            self.assertIn(f"install liqod {release} again", str(error))
            self.assertEqual((self.writes, missing in self.there), ([], False))
            self.there.clear()

    def test_other_releases_are_overwritten(self) -> None:
        """Those of earlier releases, of this one, of none that is known; also by a checkout, which knows no release."""
        known = [(release, "0.2.1") for release in ("0.2.1", "0.1.9", "", "trunk")]
        for release, own in (*known, ("9.9.9", "(checkout)")):
            name = self.written_by(release)
            self.assertEqual(self.successResultOf(self.ensure(own=own)), [name])
            self.there.clear()
            self.writes.clear()

    def test_what_is_not_marked_as_ours_is_left_alone(self) -> None:
        """Another's is not overwritten, nor anything else written, unless a user said so or nothing differs."""
        name = self.written_by("")
        for mark in ({}, {manifests.MANAGED_BY: "Helm"}):
            self.there[name]["metadata"]["labels"] = mark
            error = self.failureResultOf(self.ensure(), ManagedElsewhere).value
            self.assertIn(f"{name} is not marked as liqod's", str(error))
        self.assertEqual(self.writes, [])
        self.assertEqual(self.successResultOf(self.ensure(unmarked=True)), [name])
        self.there[name]["metadata"]["labels"] = {}
        self.assertEqual(self.successResultOf(self.ensure()), [])

    def test_missing_rights_say_what_to_do(self) -> None:
        """Forbidden names the definition and the way out."""
        self.refusal = (403, status(403, "Forbidden", "no"))
        error = self.failureResultOf(self.ensure(), Forbidden).value
        self.assertIn("liqodctl install", str(error))
