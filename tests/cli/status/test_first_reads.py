"""What the first screen reads: side by side and within a bound, and what it has the API server try."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import attrs
import msgspec
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import Clock, deferLater
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.account.names import LEASE, account_of, bound_secret_of
from liqod.agent.service import Agent
from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options
from liqod.cli.console.session import Session
from liqod.cli.status.cluster_records import BUDGET, RECORDS_WITHIN
from liqod.cli.status.first_screen import FirstScreen, first_screen, trial_pod
from liqod.cli.status.peers import status_rows
from liqod.cli.status.status import daemon_line, find_in
from liqod.cli.web.view import Snapshot, overview
from liqod.config.load import parse
from liqod.config.schema import Settings
from liqod.demo.access import client_config
from liqod.kube import manifests
from liqod.kube.errors import Forbidden, NotFound, Unreachable
from liqod.kube.pages import Listing
from liqod.kube.resources import (
    ADVERTISEMENTS,
    CLUSTERROLEBINDINGS,
    FOREIGNCLUSTERS,
    LEASES,
    NAMESPACEOFFLOADINGS,
    NAMESPACES,
    NATTINGTABLES,
    NETWORKCONFIGS,
    NETWORKGATEWAYS,
    NODES,
    PODS,
    RESOURCESLICES,
    SECRETS,
    SERVICEACCOUNTS,
    TUNNELENDPOINTS,
    VIRTUALNODES,
    Resource,
)
from liqod.model.diagnosis.access import AccountFacts, NodeApiFacts, of_account, of_webhook
from liqod.model.diagnosis.cluster import ClusterRecords, diagnose
from liqod.model.diagnosis.examination import Evidence, examine
from liqod.model.diagnosis.installation import Unread
from liqod.model.diagnosis.problem import PROCESSES
from liqod.model.names import REMOTE_CLUSTER_LABEL, TOKEN_ANNOTATION, WEBHOOK_PROBE
from liqod.model.objects.meta import Object, ObjectMeta
from liqod.model.objects.node import Node
from liqod.model.records.views import ForeignCluster, VirtualNode
from liqod.model.timestamps import rfc3339_micro
from tests.agent.test_service import SETTINGS
from tests.cli.cluster_case import REACTOR, ClusterCase

SLOW: float = 2.0
EVERYTHING = (
    *(ADVERTISEMENTS, FOREIGNCLUSTERS, LEASES, NAMESPACEOFFLOADINGS, NATTINGTABLES, NETWORKCONFIGS, NETWORKGATEWAYS),
    *(NODES, PODS, NAMESPACES, RESOURCESLICES, TUNNELENDPOINTS, VIRTUALNODES),
)
"""The kinds that the first screen lists."""


class Slow:
    """An API server without objects that takes its time for each answer, and says nothing of some kinds."""

    config = SimpleNamespace(server="https://192.0.2.1:6443")

    def __init__(self, clock: Clock, silent: tuple[Resource, ...] = (), denied: tuple[Resource, ...] = ()) -> None:
        self._clock = clock
        self._silent = silent
        self._denied = denied
        self.asked: list[str] = []

    async def _answer(self, resource: Resource) -> None:
        self.asked.append(resource.plural)
        if resource in self._silent:
            await Deferred[None]()
        await deferLater(self._clock, SLOW)
        if resource in self._denied:
            raise Forbidden(403, "Forbidden", "no")

    async def list(self, resource: Resource, *_: Any, **__: Any) -> Any:
        await self._answer(resource)
        empty: Listing[Any] = Listing([], "1")
        return empty

    async def page(self, resource: Resource, *_: Any, **__: Any) -> Any:
        await self._answer(resource)
        return SimpleNamespace(items=[])

    async def get(self, resource: Resource, *_: Any, **__: Any) -> Any:
        await self._answer(resource)
        raise NotFound(404, "NotFound", "no")

    async def create(self, resource: Resource, *_: Any, **__: Any) -> Any:
        await self._answer(resource)
        return {}


class BoundTests(SynchronousTestCase):
    """Where the API server is slow."""

    def read(self, seconds: float, **more: Any) -> tuple[FirstScreen, Slow]:
        """Return what is known after some seconds; it fails where nothing is shown by then."""
        clock = Clock()
        server = Slow(clock, **more)
        session: Any = SimpleNamespace(reactor=clock, client=server, settings=Settings(), options=Options())
        looking = Deferred.fromCoroutine(first_screen(session))
        for _ in range(int(10 * seconds)):
            clock.advance(0.1)
        return self.successResultOf(looking), server

    def test_side_by_side(self) -> None:
        """Two rounds of requests are enough, however many there are: the second is about what the first has shown."""
        screen, server = self.read(2 * SLOW + 0.5)
        self.assertEqual((screen.unread, screen.facts.waiting, screen.facts.tenants), ((), [], []))
        self.assertLess(len(server.asked), 24)

    def test_silent(self) -> None:
        """What is not answered is left out after a bound, and named."""
        screen, _ = self.read(BUDGET + 0.5, silent=(PODS,))
        (left_out,) = screen.unread
        self.assertIn("pods that wait: the API server did not answer within 7 s", left_out.cause)
        self.assertIsNone(screen.facts.waiting)
        self.assertEqual(screen.facts.tenants, [])

    def test_silent_kind(self) -> None:
        """A kind of records that is not answered is named, and the rest is shown, in less than ten seconds."""
        for resource in (FOREIGNCLUSTERS, ADVERTISEMENTS, NODES, NAMESPACEOFFLOADINGS, LEASES):
            screen, _ = self.read(BUDGET + 0.5, silent=(resource,))
            self.assertEqual(screen.facts.unread, {resource.plural})
            said = f"{resource.plural}: the API server did not answer within {RECORDS_WITHIN:.0f} s"
            self.assertEqual([one.cause for one in screen.unread if resource.plural in one.cause], [said])
            self.assertEqual((screen.facts.waiting, screen.facts.tenants), ([], []))

    def test_unknown_is_not_none(self) -> None:
        """Where Leases or peers were not read nobody says that no daemon runs, or that there are no peers."""
        screen, _ = self.read(BUDGET + 0.5, silent=(LEASES,))
        self.assertEqual((diagnose(screen.facts), screen.facts.accounts), ([], ()))
        self.assertEqual(daemon_line(screen.facts), "whether a daemon runs is not known")
        read, _ = self.read(2 * SLOW + 0.5)
        self.assertIn("NoDaemon", [one.code for one in diagnose(read.facts)])
        screen, _ = self.read(BUDGET + 0.5, silent=(FOREIGNCLUSTERS,))
        with self.assertRaises(CliError) as caught:
            find_in(screen, "milan")
        self.assertEqual(caught.exception.code, errors.UNREACHABLE)
        self.assertIn("foreignclusters: the API server did not answer", caught.exception.message)
        page = overview(Snapshot(home="rome", facts=screen.facts, unread=screen.unread))
        self.assertEqual((page.summary, page.empty), ("which peers there are is not known",) * 2)
        self.assertTrue(any("foreignclusters" in step.text for step in page.steps))

    def test_all_silent(self) -> None:
        """An API server that answers nothing is said to be out of reach, within the bound."""
        clock = Clock()
        server = Slow(clock, silent=EVERYTHING)
        session: Any = SimpleNamespace(reactor=clock, client=server, settings=Settings(), options=Options())
        looking = Deferred.fromCoroutine(first_screen(session))
        for _ in range(int(10 * (RECORDS_WITHIN + 0.5))):
            clock.advance(0.1)
        self.assertIn("did not answer", self.failureResultOf(looking, Unreachable).getErrorMessage())

    def test_orphans_of_unread_peers(self) -> None:
        """Nothing is called an orphan where not all records were read."""
        space = Object(metadata=ObjectMeta(name="shop-rome", labels={REMOTE_CLUSTER_LABEL: "c2"}))
        for unread, found in ((frozenset[str](), True), (frozenset({"foreignclusters"}), False)):
            known = examine(Evidence(records=ClusterRecords(unread=unread), spaces=[space]))
            self.assertEqual(any(one.code == "Orphaned" for one in known.problems), found)

    def test_node_that_was_not_read(self) -> None:
        """Of a virtual node whose Node was not read nobody says that it was not created."""
        peer = msgspec.convert({"metadata": {"name": "c2"}, "spec": {"fingerprint": "x"}}, ForeignCluster)
        record = msgspec.convert({"spec": {"clusterID": "c2", "nodeName": "liqo-milan"}}, VirtualNode)
        for unread, shown, pods in ((frozenset[str](), "not created yet", 0), (frozenset({"nodes"}), "not read", "")):
            (row,) = status_rows(ClusterRecords(peers=[peer], virtual_nodes=[record], unread=unread), {})
            node = f"liqo-milan ({shown})"
            self.assertEqual((row["node"], row["nodes"], row["pods"]), (node, [node], pods))

    def test_denied(self) -> None:
        """What the user may not see is left out, and that is no trouble."""
        screen, _ = self.read(2 * SLOW + 0.5, denied=(PODS, NAMESPACES))
        self.assertEqual((screen.unread, screen.facts.waiting, screen.facts.tenants), ((), None, None))

    def test_kept_while_watching(self) -> None:
        """What was tried once is shown until it is tried again, and so is what could not be tried."""
        screen, _ = self.read(2 * SLOW + 0.5)
        kept = [NodeApiFacts("liqo-milan", "192.0.2.1", 5875, "refused")]
        tried = FirstScreen(attrs.evolve(screen.facts, node_apis=kept))
        self.assertEqual(screen.with_trials_of(tried).facts.node_apis, kept)
        silent = Unread(PROCESSES, "the webhook: the API server did not answer within 7 s", "try it again")
        untried = attrs.evolve(tried, unread=(silent,), untried=(silent,))
        self.assertEqual(screen.with_trials_of(untried).unread, (silent,))
        self.assertEqual(untried.with_trials_of(tried).unread, ())
        ended, works = (
            AccountFacts(name="liqod", exists=True, has_token=True, is_bound=True, works=works)
            for works in (False, True)
        )
        found = FirstScreen(attrs.evolve(screen.facts, accounts=[ended, works]))
        later = attrs.evolve(screen, facts=attrs.evolve(screen.facts, accounts=()))
        self.assertEqual(later.with_trials_of(found).facts.accounts, [works], "whose daemon leads now")
        self.assertEqual(found.with_trials_of(tried).facts.accounts, [ended, works])

    def test_trial_pod(self) -> None:
        """The pod that is tried says so, has a name of its own each time, and asks for next to nothing."""
        one, two = trial_pod(), trial_pod()
        self.assertNotEqual(one["metadata"]["name"], two["metadata"]["name"])
        self.assertEqual(one["metadata"]["annotations"], {WEBHOOK_PROBE: "asked"})
        self.assertTrue(one["spec"]["containers"][0]["securityContext"]["runAsNonRoot"])


class Rounds:
    """How many answers of the server followed one another, each to what was sent after the one before had come."""

    def __init__(self) -> None:
        self.passed = 0


class Late(Protocol):
    """One end of a connection; what comes in goes out at the other end, later."""

    def __init__(self, delay: float, rounds: Rounds) -> None:
        self.delay = delay
        self.rounds = rounds
        self.round = 0
        self.other: Late | None = None
        self.early: list[bytes] = []

    def dataReceived(self, data: bytes) -> None:
        if self.delay == 0:
            self.round = self.rounds.passed + 1
        if self.other is None:
            self.early.append(data)
        elif self.delay == 0:
            self.other.send(data)
        else:
            REACTOR.callLater(self.delay, self.answer, self.other.round, data)

    def answer(self, round: int, data: bytes) -> None:
        self.rounds.passed = max(self.rounds.passed, round)
        assert self.other is not None
        self.other.send(data)

    def send(self, data: bytes) -> None:
        if self.transport is not None and self.connected:
            self.transport.write(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.other is not None:
            REACTOR.callLater(self.delay, self.other.leave)

    def leave(self) -> None:
        if self.transport is not None and self.connected:
            self.transport.loseConnection()


class FarEnds(Factory):
    """Makes the ends at the server."""

    def __init__(self, delay: float, rounds: Rounds) -> None:
        self._delay = delay
        self._rounds = rounds

    def buildProtocol(self, addr: Any) -> Late:
        return Late(self._delay, self._rounds)


class Doors(Factory):
    """Lets connections through to a port of this host; what the server says takes its time."""

    def __init__(self, port: int, delay: float) -> None:
        self.rounds = Rounds()
        self._port = port
        self._delay = delay

    def buildProtocol(self, addr: Any) -> Late:
        near = Late(0.0, self.rounds)
        ends = FarEnds(self._delay, self.rounds)
        opening = TCP4ClientEndpoint(REACTOR, "127.0.0.1", self._port).connect(ends)

        def opened(far: Any) -> None:
            near.other, far.other = far, near
            for data in near.early:
                far.send(data)

        opening.addCallbacks(opened, lambda _: near.leave())
        return near


class SlowApiTests(ClusterCase):
    """The command, against an API server that is far away."""

    async def test_status(self) -> None:
        """With a second for each answer, handshakes among them, status takes less than ten one after the other."""
        await manifests.ensure(self.client)
        port = int(self.cluster.url.rpartition(":")[2])
        doors = Doors(port, 1.0)
        listening = REACTOR.listenTCP(0, doors, interface="127.0.0.1")
        self.addCleanup(lambda: maybeDeferred(listening.stopListening))
        slow = self.cluster.url.replace(f":{port}", f":{listening.getHost().port}")
        self.kubeconfig.write_text(self.cluster.kubeconfig().replace(self.cluster.url, slow))
        out = await self.liqodctl("status")
        self.assertLess(doors.rounds.passed, 10)
        self.assertGreater(doors.rounds.passed, 2)
        self.assertIn("NoDaemon", out)
        await deferLater(REACTOR, 1.5)  # what is under way arrives


class TrialTests(ClusterCase):
    """What the API server is asked to try, with a daemon that leads."""

    def session(self) -> Session:
        return Session(Options(), reactor=REACTOR, client=self.client, settings=Settings())

    async def lead(self) -> Agent:
        """Start a daemon, and return it once others see that it works."""
        agent = Agent(REACTOR, parse(SETTINGS, {}), client_config=client_config(self.cluster))
        agent.startService()
        self.addCleanup(agent.stopService)
        await agent.ready.wait()
        while not any(one.webhook for one in (await first_screen(self.session(), tries=False)).facts.processes):
            await deferLater(REACTOR, 0.1)
        return agent

    async def test_webhook(self) -> None:
        """A webhook that answers is known from one that does not; without an offloaded namespace nothing is tried."""
        agent = await self.lead()
        found = (await first_screen(self.session())).facts.webhook
        assert found is not None
        self.assertEqual((found.configured, found.answered), (True, None))
        await self.client.create(NAMESPACES, {"metadata": {"name": "shop", "labels": {"liqo.io/enabled": "true"}}})
        found = (await first_screen(self.session())).facts.webhook
        assert found is not None
        self.assertEqual((found.configured, found.answered, list(of_webhook(found))), (True, True, []))
        self.assertEqual((await self.client.list(PODS, "shop")).items, [])
        assert agent.features is not None and agent.features.webhook is not None
        answering = agent.features.webhook._answering
        port = answering._port
        assert port is not None
        await maybeDeferred(port.stopListening)
        answering._listener.hang_up()  # type: ignore[union-attr]
        closed = (await first_screen(self.session())).facts
        self.assertEqual([one.code for one in diagnose(closed) if one.failing], ["WebhookUnreachable"])
        self.assertRegex(diagnose(closed)[0].advice, r"TCP port \d+ of 127.0.0.1")

    async def test_account(self) -> None:
        """Where no daemon runs it is said whether its token was deleted, or its rights taken."""
        await self.liqodctl("install")
        namespace, name = "liqo-system", account_of("all")
        (account,) = (await first_screen(self.session())).facts.accounts
        self.assertEqual((account.name, account.exists, account.is_bound), (f"{namespace}/{name}", True, True))
        self.assertEqual((account.lacks, account.has_token), ((), True), "one that was never written is not missed")
        await self.client.delete(SECRETS, bound_secret_of(name), namespace)
        (account,) = (await first_screen(self.session())).facts.accounts
        self.assertTrue(account.has_token, "a pod needs none")
        note = {"metadata": {"annotations": {TOKEN_ANNOTATION: bound_secret_of(name)}}}
        await self.client.patch(SERVICEACCOUNTS, name, note, namespace)
        self.assertIn("TokenMissing", await self.liqodctl("status"))
        await self.client.delete(SERVICEACCOUNTS, name, namespace)
        (gone,) = (await first_screen(self.session())).facts.accounts
        self.assertEqual([one.code for one in of_account(gone)], ["AccountMissing"])

    async def test_account_of_one_that_works(self) -> None:
        """A daemon that renews its lease, and whose rights were taken, is named, when things are tried."""
        await self.liqodctl("install")
        renewed = rfc3339_micro(datetime.now(UTC))
        spec = {"holderIdentity": "one", "leaseDurationSeconds": 60, "renewTime": renewed}
        await self.client.create(LEASES, {"metadata": {"name": LEASE}, "spec": spec}, "liqo-system")
        well = (await first_screen(self.session())).facts
        self.assertEqual([(one.works, one.lacks) for one in well.accounts], [(True, ())])
        self.assertNotIn("RightsMissing", await self.liqodctl("status"))
        await self.client.delete(CLUSTERROLEBINDINGS, account_of("all"))
        out = re.sub(r"\s+", " ", await self.liqodctl("status"))
        self.assertIn(
            "account liqo-system/liqod: RightsMissing: the daemon's account may not: list foreignclusters", out
        )
        self.assertEqual((await first_screen(self.session(), tries=False)).facts.accounts, ())

    async def test_pods_that_wait(self) -> None:
        """Pods on virtual nodes that do not run are counted and named with their lender's words, by status."""
        await manifests.ensure(self.client)
        await self.client.create(NAMESPACES, {"metadata": {"name": "shop"}})
        await self.client.create(NAMESPACES, {"metadata": {"name": "liqo-tenant-c2"}})
        record = {"metadata": {"name": "c2"}, "spec": {"clusterID": "c2", "nodeName": "liqo-milan"}}
        await self.client.create(VIRTUALNODES, record, "liqo-tenant-c2")
        labels = {"liqo.io/type": "virtual-node"}
        await self.client.create(NODES, {"metadata": {"name": "liqo-milan", "labels": labels}}, view=Node)
        waiting = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling "web:none"'}}
        status = {
            "phase": "Pending",
            "containerStatuses": [
                {"name": "web", "image": "web:none", "imageID": "", "ready": False, "restartCount": 0, "state": waiting}
            ],
        }
        for number in range(5):
            pod = {
                "metadata": {"name": f"web-{number}"},
                "spec": {"nodeName": "liqo-milan", "containers": [{"name": "web", "image": "web:none"}]},
            }
            await self.client.create(PODS, pod, "shop")
            await self.client.patch(PODS, f"web-{number}", {"status": status}, "shop", subresource="status")
        out = re.sub(r"\s+", " ", await self.liqodctl("status"))
        self.assertIn("pod shop/web-0: ImageMissing: 5 pods do not run", out)
        self.assertIn('shop/web-2 and 2 more), says c2: ImagePullBackOff: Back-off pulling "web:none"', out)
        self.assertIn("`liqodctl explain web-0 -n shop`", out)
        problems = json.loads(await self.liqodctl("status", "-o", "json"))["problems"]
        self.assertIn("ImageMissing", [one["code"] for one in problems])

    async def test_pods_that_ask(self) -> None:
        """A pod that asks for virtual nodes in a namespace that is not offloaded is named so, and no other."""
        await manifests.ensure(self.client)
        await self.client.create(NAMESPACES, {"metadata": {"name": "early"}})
        no_node = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/2 nodes are available",
        }
        for name, labels in (("early-bird", {"liqo.io/type": "virtual-node"}), ("other", {"disk": "fast"})):
            containers = [{"name": "web", "image": "web:1"}]
            pod = {"metadata": {"name": name}, "spec": {"nodeSelector": labels, "containers": containers}}
            await self.client.create(PODS, pod, "early")
            status = {"phase": "Pending", "conditions": [no_node]}
            await self.client.patch(PODS, name, {"status": status}, "early", subresource="status")
        problems = json.loads(await self.liqodctl("status", "-o", "json"))["problems"]
        found = [(one["code"], one["name"]) for one in problems if one["kind"] == "pod"]
        self.assertEqual(found, [("NamespaceNotOffloaded", "early/early-bird")])
        label = {"metadata": {"labels": {"liqo.io/enabled": "true"}}}
        await self.client.patch(NAMESPACES, "early", label)
        problems = json.loads(await self.liqodctl("status", "-o", "json"))["problems"]
        self.assertEqual([one["code"] for one in problems if one["kind"] == "pod"], ["PodUnplaced"])

    async def test_no_lease_to_list(self) -> None:
        """A Lease without a process of ours, and one that was released, are no daemon."""
        await manifests.ensure(self.client)
        await self.client.create(NAMESPACES, {"metadata": {"name": "liqo-system"}})
        for name in (LEASE, "somebody-elses"):
            lease = {"metadata": {"name": name}, "spec": {"holderIdentity": ""}}
            await self.client.create(LEASES, lease, "liqo-system")
        facts = (await first_screen(self.session())).facts
        self.assertEqual((facts.leader, facts.processes, facts.agent), (None, [], None))
