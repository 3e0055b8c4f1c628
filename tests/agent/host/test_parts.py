"""The small parts of the daemon: what the service manager is sent, clocks, addresses, names, troubles."""

from __future__ import annotations

import contextlib
import re
import socket
from pathlib import Path

from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.errors import explain
from liqod.agent.host.address import cluster_name, own_address
from liqod.agent.host.sdnotify import Notifier
from liqod.agent.host.watchdog import Watchdog
from liqod.kube.errors import Forbidden, ServerError, Unauthorized, Unreachable
from liqod.model.addresses import is_ip
from liqod.model.diagnosis.installation import ClockFacts, clock_problems


class ServiceManagerTests(SynchronousTestCase):
    def setUp(self) -> None:
        # Socket paths are short by nature; trial's own directories need not be.
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.socket.close)
        self.socket.bind("")
        self.socket.setblocking(False)
        self.address = "@" + self.socket.getsockname()[1:].decode()

    def reported(self) -> list[str]:
        messages = []
        while True:
            try:
                messages.append(self.socket.recv(4096).decode())
            except BlockingIOError:
                return messages

    def test_messages(self) -> None:
        """Readiness is reported once, a status when it changes, on one line."""
        notifier = Notifier.from_environment({"NOTIFY_SOCKET": self.address})
        notifier.status("waiting:\n for the API")
        notifier.status("waiting: for the API")
        notifier.ready()
        notifier.ready()
        notifier.stopping()
        self.assertEqual(self.reported(), ["STATUS=waiting: for the API", "READY=1", "STOPPING=1"])

    def test_reload(self) -> None:
        """A reload ends with READY=1 if that was so before; one that starts the daemon again is no stop."""
        notifier = Notifier(self.address)
        notifier.status("leading")
        notifier.reloading()
        notifier.note("the configuration is wrong")
        notifier.reloaded()
        notifier.ready()
        notifier.reloading()
        notifier.note("")
        notifier.reloaded()
        notifier.reloading()
        notifier.stopping()
        said = [re.sub("USEC=[0-9]+", "USEC=1", message) for message in self.reported()]
        begins = "RELOADING=1\nMONOTONIC_USEC=1"
        self.assertEqual(said[:4], ["STATUS=leading", begins, "STATUS=leading; the configuration is wrong", "READY=1"])
        self.assertEqual(said[4:], [begins, "STATUS=leading", "READY=1", begins])

    def test_without(self) -> None:
        """Without a service manager nothing is sent, and one that is gone does no harm."""
        Notifier.from_environment({}).ready()
        Notifier(str(Path(self.mktemp()).absolute())).ready()
        self.assertEqual(self.reported(), [])

    def test_full(self) -> None:
        """What a busy service manager has no room for is sent with the next message: the last of each kind, once."""
        notifier = Notifier(self.address)
        other = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        with other, contextlib.suppress(BlockingIOError):
            while True:
                other.sendto(b"other", "\0" + self.address[1:])
        for text in ("waiting", "leading"):
            notifier.status(text)
            notifier.alive()
        notifier.ready()
        self.assertEqual(set(self.reported()), {"other"})
        notifier.alive()
        notifier.alive()
        self.assertEqual(self.reported(), ["STATUS=leading", "READY=1", "WATCHDOG=1", "WATCHDOG=1"])

    def test_interval(self) -> None:
        """The watchdog is fed three times in its limit, and only where it is meant for this process."""
        self.assertEqual(Notifier.from_environment({"WATCHDOG_USEC": "30000000"}).interval, 10.0)
        self.assertEqual(Notifier.from_environment({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}).interval, 0.0)
        self.assertEqual(Notifier.from_environment({}).interval, 0.0)

    def test_watchdog(self) -> None:
        """The watchdog is fed while things move, starves with one sentence when they do not, and recovers."""
        clock, stuck = Clock(), [""]
        watchdog = Watchdog(clock, Notifier(self.address, 10.0), lambda: stuck[0])
        watchdog.startService()
        clock.advance(10)
        self.assertEqual(self.reported(), ["WATCHDOG=1", "WATCHDOG=1"])
        stuck[0] = "the main task has ended"
        with capturedLogs() as logs:
            clock.advance(10)
            self.assertEqual([event["detail"] for event in logs], ["the main task has ended"])
            clock.advance(10)
            clock.advance(10)
            stuck[0] = "another cause"
            clock.advance(10)
        self.assertEqual(self.reported(), [])
        self.assertEqual([event["detail"] for event in logs], ["the main task has ended", "another cause"])
        stuck[0] = ""
        clock.advance(10)
        self.assertEqual(self.reported(), ["WATCHDOG=1"])
        watchdog.stopService()
        self.assertEqual(clock.getDelayedCalls(), [])


class ClocksTests(SynchronousTestCase):
    def test_judgement(self) -> None:
        """Half a minute is nothing, more is worth a warning, five minutes are fatal, in both directions."""
        for skew, severity, text in (
            (29, "", ""),
            (-29, "", ""),
            (31, "warning", "31 seconds ahead of"),
            (299, "warning", "299"),
            (-300, "error", "300 seconds behind"),
        ):
            found = list(clock_problems(ClockFacts(skew)))
            self.assertEqual([one.severity for one in found], [severity] if severity else [], skew)
            self.assertTrue(all(text in one.cause and one.code == "ClockSkew" for one in found))


class AddressesTests(SynchronousTestCase):
    def address(self, server: str, **routes: str) -> str:
        """Return the address of a host with routes: to 10.0.0.0/8, and by IPv4 and IPv6 to everywhere."""

        def local_end(target: str, _: int) -> str:
            near = "near" if target.startswith("10.") else "six" if ":" in target else "four"
            return target if target in ("127.0.0.1", "::1") else routes.get(near, "")

        return own_address("", server, local_end)

    def test_the_way_to_the_api_server(self) -> None:
        """It is the local end of that, and of the default route where the host has a name."""
        routes = {"near": "10.0.0.9", "four": "192.0.2.9", "six": "2001:db8::9"}
        self.assertEqual(self.address("https://10.0.0.1:6443", **routes), "10.0.0.9")
        self.assertEqual(self.address("https://rome.example.org:6443", **routes), "192.0.2.9")
        self.assertEqual(own_address("192.0.2.7", "https://10.0.0.1:6443"), "192.0.2.7")

    def test_loopback(self) -> None:
        """An API server on this host, as kubeconfigs of k3s name it, says nothing: others cannot use its address."""
        for server in ("https://127.0.0.1:6443", "https://[::1]:6443", "https://localhost:6443"):
            self.assertEqual(self.address(server, four="192.0.2.9"), "192.0.2.9", server)
            self.assertEqual(self.address(server, six="2001:db8::9"), "2001:db8::9", server)
            self.assertEqual(self.address(server), "127.0.0.1", "no route at all")

    def test_never_fails(self) -> None:
        """A name or nonsense still gives an address of this host, and so does an API server on it."""
        for server in ("https://rome.example.org:6443", "", "nonsense", "https://127.0.0.1:6443"):
            self.assertTrue(is_ip(own_address("", server)), server)

    def test_names(self) -> None:
        """The cluster's name is the configured one, or a label made of the host's name."""
        self.assertEqual(cluster_name("rome", "host"), "rome")
        self.assertEqual(cluster_name("", "Node_1.example.org"), "node-1")
        self.assertEqual(cluster_name("", "---"), "cluster")
        self.assertEqual(len(cluster_name("", "x" * 100)), 63)


class TroublesTests(SynchronousTestCase):
    def test_sentences(self) -> None:
        """Every kind of failed request has its own reason, and says what to do next."""
        for error, reason, hint in (
            (Unreachable("connection refused"), "APIUnreachable", "kubernetes.kubeconfig"),
            (Unauthorized(401, "Unauthorized", "who?"), "CredentialsRefused", "--daemon-kubeconfig"),
            (Forbidden(403, "Forbidden", "may not"), "RightsMissing", "liqodctl check"),
            (ServerError(500, "", "broken"), "APIRefused", "tried again"),
        ):
            trouble = explain(error, "listing pods", "https://x:6443")
            self.assertEqual(trouble.reason, reason)
            self.assertIn(hint, trouble.message)
            self.assertNotIn("LIQOD_DAEMON__ROLE", trouble.message)

    def test_commands_of_a_role(self) -> None:
        """A command of `liqodctl` names the role of the process that needs it."""
        for error, command in (
            (Unauthorized(401, "Unauthorized", "who?"), "install --daemon-kubeconfig FILE"),
            (Forbidden(403, "Forbidden", "may not"), "check"),
        ):
            trouble = explain(error, "listing pods", "https://x:6443", "network")
            self.assertIn(f"`LIQOD_DAEMON__ROLE=network liqodctl {command}`", trouble.message)
