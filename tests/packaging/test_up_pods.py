"""``up --in-cluster`` and ``down --in-cluster``: a cluster of the sandbox whose pods are daemons of this process."""

from __future__ import annotations

import io
import json
import os
from contextlib import redirect_stdout
from typing import Any

import attrs
from kubesandbox.auth.tokens import User
from kubesandbox.cluster import SandboxCluster
from kubesandbox.nodes.node import SandboxNode
from msgspec.structs import replace
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.trial.unittest import TestCase

from liqod.agent.account.rights import required
from liqod.agent.service import Agent
from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options
from liqod.cli.console.session import Session
from liqod.cli.setup.up.pods import down as taking_down
from liqod.cli.setup.up.pods.down import take_down
from liqod.cli.setup.up.pods.observe import Wishes, log_of, pods_of
from liqod.cli.setup.up.pods.set_up import set_up_pods
from liqod.config.schema import DiscoverySettings, LeaderSettings, Settings
from liqod.demo.access import client_config
from liqod.demo.side import settings as side_settings
from liqod.identity.pairing import read_token
from liqod.kube import resources
from liqod.kube.client import Client
from liqod.kube.connection.config import from_grant
from liqod.kube.resources import (
    CLUSTERROLEBINDINGS,
    CLUSTERROLES,
    CONFIGMAPS,
    DEPLOYMENTS,
    FOREIGNCLUSTERS,
    NAMESPACES,
    NODES,
    SERVICEACCOUNTS,
    SERVICES,
    Resource,
)
from liqod.model.names import OVERLAY_ANNOTATION
from tests.packaging.contents import objects_of
from tests.waiting import becomes

REACTOR: Any = reactor
OWN = "liqo-system"
CEILING = 60.0
ENFORCE = "pod-security.kubernetes.io/enforce"


class DaemonInPods:
    """Runs the daemon of a cluster as long as the Deployment has a pod, under the name of that pod."""

    def __init__(self, session: Session, settings: Settings, config: Any) -> None:
        self._session = session
        self._settings = settings
        self._config = config
        self.agent: Agent | None = None
        self._is_stopping = False
        self._polling = LoopingCall(lambda: Deferred.fromCoroutine(self._poll()))
        self._polling.clock = REACTOR

    @property
    def is_running(self) -> bool:
        """Whether the daemon runs, or has not ended yet."""
        return self.agent is not None or self._is_stopping

    def serves(self, session: Session) -> bool:
        """Return whether its cluster is that of a session."""
        return self._session.client is session.client

    def start(self) -> None:
        """Begin to look for pods."""
        self._polling.start(0.1)

    async def stop(self) -> None:
        """Stop looking, and the daemon."""
        if self._polling.running:
            self._polling.stop()
        if self.agent is not None:
            await self.agent.stopService()

    async def _poll(self) -> None:
        pods = [one for one in await pods_of(self._session) if one.get("status", {}).get("phase") == "Running"]
        if pods and self.agent is None:
            leader = LeaderSettings(identity=pods[0]["metadata"]["name"])
            settings = replace(self._settings, leader=leader)
            self.agent = Agent(REACTOR, settings, client_config=self._config, hostname="pod")
            self.agent.startService()
        elif not pods and self.agent is not None:
            agent, self.agent = self.agent, None
            self._is_stopping = True
            await agent.stopService()
            self._is_stopping = False


@attrs.frozen
class World:
    """A cluster with an administrator's session, and what runs in its pods."""

    cluster: SandboxCluster
    session: Session
    pods: DaemonInPods


class UpPodsCase(TestCase):
    timeout = 300

    async def setUp(self) -> None:  # type: ignore[override]
        self.daemons: list[DaemonInPods] = []
        # A pod ends after its process; the daemons of this process end after their pods.
        self.patch(taking_down, "pods_of", self.pods_and_daemons)
        self.rome = await self.world("rome")

    async def pods_and_daemons(self, session: Session) -> list[dict[str, Any]]:
        """Return the pods of a cluster, with one for a daemon that has not ended."""
        pods: list[dict[str, Any]] = await pods_of(session)
        running = [one for one in self.daemons if one.serves(session) and one.is_running]
        return pods or [{"metadata": {"name": "a daemon"}} for _ in running]

    async def world(self, name: str) -> World:
        """Return a cluster of one node without anything of liqod."""
        cluster = SandboxCluster(REACTOR, name, [SandboxNode(f"{name}-1")])
        cluster.listen(REACTOR)
        cluster.startService()
        self.addCleanup(lambda: Deferred.fromCoroutine(cluster.stop()))
        client = Client(client_config(cluster), REACTOR)
        self.addCleanup(lambda: Deferred.fromCoroutine(client.close()))
        settings = side_settings(name, f"{name}-{os.getpid()}")
        settings = replace(settings, discovery=DiscoverySettings(mdns=False))
        session = Session(Options(output="json"), reactor=REACTOR, client=client, settings=Settings())
        pods = DaemonInPods(session, settings, client_config(cluster))
        self.daemons.append(pods)
        self.addCleanup(lambda: Deferred.fromCoroutine(pods.stop()))

        async def is_settled() -> bool:
            nodes = (await client.list(NODES)).items
            accounts = (await client.list(SERVICEACCOUNTS, "kube-system")).items
            return bool(nodes and accounts)

        await becomes(is_settled, "a cluster at rest", CEILING)
        pods.start()
        return World(cluster, session, pods)

    async def up(self, world: World, wishes: Wishes | None = None, **options: Any) -> dict[str, Any]:
        """Run `up --in-cluster -o json --yes`; returns its document."""
        with redirect_stdout(io.StringIO()) as output:
            named = wishes or Wishes()
            await set_up_pods(world.session, named, **{"yes": True, "timeout": CEILING, **options})
        found: dict[str, Any] = json.loads(output.getvalue())
        return found

    async def down(self, world: World, **options: Any) -> dict[str, Any]:
        """Run `down --in-cluster -o json --yes`; returns its document."""
        with redirect_stdout(io.StringIO()) as output:
            await take_down(world.session, **{"force": False, "dry_run": False, "yes": True, **options})
        found: dict[str, Any] = json.loads(output.getvalue())
        return found


def states(document: dict[str, Any]) -> dict[str, str]:
    """Return the state of each step."""
    return {step["step"]: step["state"] for step in document["steps"]}


class LifeTests(UpPodsCase):
    async def test_before_and_after(self) -> None:
        """`up` runs a daemon in a pod and shows the words of its key; `down` leaves the cluster as it was."""
        before = objects_of(self.rome.cluster)
        shown = await self.up(self.rome, dry_run=True)
        self.assertEqual(objects_of(self.rome.cluster), before)
        self.assertEqual(states(shown), {"check": "done", "cluster": "needed", "pods": "needed", "ready": "needed"})
        document = await self.up(self.rome, Wishes(name="rome"))
        self.assertEqual(len(document["words"].split("-")), 10)
        there = await self.rome.session.client.get(NAMESPACES, OWN)
        self.assertEqual(there["metadata"]["labels"][ENFORCE], "privileged")
        planned = await self.down(self.rome, dry_run=True)
        self.assertIn("remove Deployment liqod", planned["would"])
        removed = await self.down(self.rome)
        self.assertTrue(removed["done"])
        self.assertIn(f"Namespace {OWN}", removed["removed"])
        self.assertEqual(objects_of(self.rome.cluster) ^ before, set())
        self.assertEqual((await self.down(self.rome))["removed"], [])

    async def test_again(self) -> None:
        """A second run finds everything done, whatever the first one named; what is named then is changed alone."""
        await self.up(self.rome, Wishes(name="rome", image="registry/liqod:test", configuration="[log]\n"))
        self.assertEqual(set(states(await self.up(self.rome, yes=False)).values()), {"done"})
        planned = await self.up(self.rome, Wishes(image="registry/liqod:other"), dry_run=True)
        (pods,) = [step for step in planned["steps"] if step["step"] == "pods"]
        self.assertEqual(pods["lines"], [f"Deployment {OWN}/liqod"])
        client = self.rome.session.client
        await client.delete(SERVICES, "liqod-webhook", OWN)
        document = await self.up(self.rome)
        self.assertEqual([name for name, state in states(document).items() if state == "needed"], ["pods", "ready"])
        configuration = await client.get(CONFIGMAPS, "liqod-configuration", OWN)
        self.assertEqual(configuration["data"], {"liqod.toml": "[log]\n"})

    async def test_tunnels(self) -> None:
        """With a gateway there are agents with an account of their own; without one they go, Nodes are as before."""
        client = self.rome.session.client
        planned = await self.up(self.rome, Wishes(gateway="rome-1"), dry_run=True)
        lines = [line for step in planned["steps"] for line in step["lines"]]
        for line in ("DaemonSet liqo-system/liqod-gateway", "ServiceAccount liqo-system/liqod-network"):
            self.assertIn(line, lines)
        await self.up(self.rome)
        body = {"metadata": {"annotations": {OVERLAY_ANNOTATION: "192.0.2.1"}}}
        await client.patch(NODES, "rome-1", body)
        await self.down(self.rome)
        node = await client.get(NODES, "rome-1")
        self.assertNotIn(OVERLAY_ANNOTATION, node["metadata"].get("annotations") or {})

    async def test_log(self) -> None:
        """What a pod wrote last can be shown, as far as there is such a pod."""
        await self.up(self.rome)
        (pod,) = await pods_of(self.rome.session)
        self.assertRegex(await log_of(self.rome.session, pod["metadata"]["name"]), "started on rome-1$")
        self.assertEqual(await log_of(self.rome.session, "none"), "")

    async def test_join(self) -> None:
        """With the token of one cluster the other one is set up and peers in the same run."""
        milan = await self.world("milan")
        made = (await self.up(self.rome, Wishes(name="rome"), invite=True))["invitation"]
        token = read_token(made["token"])
        self.assertEqual(token.name, "rome")
        # The daemons of this test listen where the system lets them, and not at their usual port.
        features = self.rome.pods.agent and self.rome.pods.agent.features
        assert features
        token = replace(token, addresses=[f"127.0.0.1:{features.peering.port}"])
        await self.up(milan, Wishes(name="milan"), token=token)
        peer = await milan.session.client.get(FOREIGNCLUSTERS, token.issuer)
        self.assertEqual(peer["spec"]["fingerprint"], token.fingerprint)
        self.assertEqual(states(await self.up(milan, token=token))["peering"], "done")

    async def test_namespace_of_others(self) -> None:
        """A namespace that was there before stays as it was, without anything of liqod in it."""
        client = self.rome.session.client
        await client.create(NAMESPACES, {"metadata": {"name": OWN}})

        async def has_account() -> bool:
            return bool((await client.list(SERVICEACCOUNTS, OWN)).items)

        await becomes(has_account, "the namespace's own account", CEILING)
        objects = objects_of(self.rome.cluster)
        await self.up(self.rome)
        await self.down(self.rome)

        async def is_as_before() -> bool:
            return objects_of(self.rome.cluster) == objects

        # What pods' owners and Services leave is collected by the cluster.
        await becomes(is_as_before, "the namespace as it was", CEILING)
        there = await client.get(NAMESPACES, OWN)
        self.assertNotIn(ENFORCE, there["metadata"].get("labels") or {})


class RefusalTests(UpPodsCase):
    """What is in the way is said before anything was changed."""

    async def assert_refused(self, reason: str, wishes: Wishes | None = None) -> None:
        objects = objects_of(self.rome.cluster)
        with self.assertRaises(CliError) as caught:
            await self.up(self.rome, wishes)
        self.assertRegex(f"{caught.exception.message}\n{caught.exception.hint}", reason)
        self.assertEqual(objects_of(self.rome.cluster), objects)

    async def test_configuration(self) -> None:
        """A configuration that is wrong."""
        await self.assert_refused("percentage = 500", Wishes(configuration="[sharing]\npercentage = 500\n"))

    async def test_gateway(self) -> None:
        """A node that is not there."""
        await self.assert_refused("there is no node far(.|\n)*rome-1", Wishes(gateway="far"))

    async def test_release_of_helm(self) -> None:
        """Pods of a Helm release, or of somebody else; `down` does not touch them either."""
        client = self.rome.session.client
        await client.create(NAMESPACES, {"metadata": {"name": OWN}})
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
        spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
        meta = {"name": "liqod", "namespace": OWN, "annotations": {"meta.helm.sh/release-name": "mine"}}
        await client.create(DEPLOYMENTS, {"metadata": meta, "spec": spec})
        await self.assert_refused("the Helm release mine has liqod's pods: `helm upgrade`")
        with self.assertRaises(CliError):
            await self.down(self.rome)
        await client.patch(DEPLOYMENTS, "liqod", {"metadata": {"annotations": None}}, OWN)
        await self.assert_refused("somebody else made liqod's pods")

    async def test_pod_security(self) -> None:
        """A namespace of others whose level refuses pods with the host's network."""
        labels = {ENFORCE: "restricted"}
        await self.rome.session.client.create(NAMESPACES, {"metadata": {"name": OWN, "labels": labels}})
        await self.assert_refused("Pod Security level restricted(.|\n)*enforce=privileged")

    async def test_rights(self) -> None:
        """A user who may look at everything and create nothing, or all but the pods' own objects."""
        rome, admin = self.rome, self.rome.session.client
        some: dict[str, Any] = {"metadata": {"name": "some"}}
        look = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}
        await admin.create(CLUSTERROLES, {**some, "rules": [look]})
        group = "rbac.authorization.k8s.io"
        subjects = [{"apiGroup": group, "kind": "User", "name": "some"}]
        reference = {"apiGroup": group, "kind": "ClusterRole", "name": "some"}
        await admin.create(CLUSTERROLEBINDINGS, {**some, "roleRef": reference, "subjects": subjects})
        rome.cluster.add_user("secret", User("some", ("system:authenticated",)))
        client = Client(from_grant(rome.cluster.url, rome.cluster.authority.pem, lambda: "secret"), REACTOR)
        self.addCleanup(lambda: Deferred.fromCoroutine(client.close()))
        self.rome = attrs.evolve(rome, session=attrs.evolve(rome.session, client=client))
        await self.assert_refused(r"user may not create leases.*, may not .*, and \d+ more; use an administrator's")
        groups = {one.group for one in vars(resources).values() if isinstance(one, Resource)}
        groups |= {one.resource.group for one in required(rome.session.settings)}
        everything = {"apiGroups": sorted(groups - {"apps"}), "resources": ["*"], "verbs": ["*"]}
        await admin.patch(CLUSTERROLES, "some", {"rules": [look, everything]})
        await self.assert_refused("this kubeconfig's user may not create deployments.apps; use an administrator's")
