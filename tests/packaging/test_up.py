"""``liqodctl up`` and ``down``: a cluster of the sandbox, a temporary root directory, and a daemon as its service."""

from __future__ import annotations

import io
import json
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
from kubesandbox.auth.tokens import User
from kubesandbox.cluster import SandboxCluster
from msgspec.structs import replace
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from liqod.agent.account.rights import required
from liqod.agent.service import Agent
from liqod.agent.state import StandingBy
from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options
from liqod.cli.console.session import Session
from liqod.cli.main import cli
from liqod.cli.peering.token import listening_port
from liqod.cli.setup.check import examine
from liqod.cli.setup.host import apply
from liqod.cli.setup.up.commands import set_up
from liqod.cli.setup.up.down import take_down
from liqod.cli.setup.up.observe import TargetHost
from liqod.cli.setup.up.plan import DaemonUnit
from liqod.cli.setup.up.service import UnitState
from liqod.config.schema import DiscoverySettings, IdentitySettings, Settings
from liqod.demo.access import client_config
from liqod.demo.side import settings as side_settings
from liqod.identity.fingerprint_words import words
from liqod.identity.pairing import Token, read_token
from liqod.identity.store import load_or_create
from liqod.kube import manifests
from liqod.kube.client import Client
from liqod.kube.connection.config import from_grant, load
from liqod.kube.resources import (
    CLUSTERROLEBINDINGS,
    CLUSTERROLES,
    CRDS,
    DEPLOYMENTS,
    FOREIGNCLUSTERS,
    NAMESPACES,
    SECRETS,
    SERVICEACCOUNTS,
)
from liqod.model.ids import ClusterID, Fingerprint
from tests.packaging.contents import objects_of
from tests.packaging.test_host import OPT, bare_root, listing_of
from tests.ports import free_ports
from tests.waiting import becomes

REACTOR: Any = reactor
KUBECONFIG = "etc/liqod/kubeconfig"
CEILING = 60.0


class DaemonHere:
    """Runs the daemon of a root directory in this process, as systemd runs its unit."""

    def __init__(self, root: Path, settings: Settings) -> None:
        self._root = root
        self.settings = settings
        self.agent: Agent | None = None
        self.log: list[str] = []
        self.broken = False
        self.others: set[str] = set()
        self._since = 0.0

    def look(self, unit: str) -> DaemonUnit:
        mine = unit == "liqod.service" and self.agent is not None
        return DaemonUnit(unit, enabled=mine or unit in self.others, running=mine, age=REACTOR.seconds() - self._since)

    def run_of(self, unit: str) -> UnitState:
        if self.broken:
            return UnitState("failed")
        ready = self.agent is not None and self.agent.ready.is_open
        return UnitState(
            "active" if ready else "activating", "leading" if ready else str(self.agent and self.agent.state.value)
        )

    def start(self, unit: str, *, again: bool) -> None:
        self.log.append("restart" if again else "start")
        if self.broken:
            return
        assert not again and self.agent is None
        config = load(str(self._root / KUBECONFIG))
        self.agent = Agent(REACTOR, self.settings, client_config=config, hostname=socket.gethostname())
        self.agent.startService()
        self._since = REACTOR.seconds()

    async def stop(self, units: Sequence[str]) -> None:
        self.log.append("stop")
        folders = [self._root / folder / "systemd/system" for folder in ("etc", "usr/lib")]
        if absent := [unit for unit in units if not any((folder / unit).exists() for folder in folders)]:
            raise CliError(errors.HOST, f"systemctl disable --now {absent[0]} failed: it does not exist")
        agent, self.agent = self.agent, None
        if agent is not None:
            await agent.stopService()

    def journal(self, unit: str) -> str:
        return "the reason, from its log"


@attrs.frozen
class World:
    """A cluster with an administrator's session, and a host."""

    cluster: SandboxCluster
    session: Session
    services: DaemonHere
    place: TargetHost

    @property
    def root(self) -> Path:
        return self.place.root


class UpCase(TestCase):
    timeout = 300

    async def setUp(self) -> None:  # type: ignore[override]
        self.rome = self.world("rome")

    def world(self, name: str, **sections: Any) -> World:
        """Return a bare host with a bare cluster."""
        root = bare_root(Path(self.mktemp()).absolute())
        cluster = SandboxCluster(REACTOR, name)
        cluster.listen(REACTOR)
        cluster.startService()
        self.addCleanup(lambda: Deferred.fromCoroutine(cluster.stop()))
        client = Client(client_config(cluster), REACTOR)
        self.addCleanup(lambda: Deferred.fromCoroutine(client.close()))
        settings = side_settings(name, f"{name}-{os.getpid()}")
        listen = f"tcp:{free_ports(1)[0]}:interface=127.0.0.1"
        # No mDNS: on the loopback interface it finds the daemons of every test on this host.
        sections = {"discovery": DiscoverySettings(mdns=False), **sections}
        settings = replace(settings, peering=replace(settings.peering, listen=listen), **sections)
        session = Session(Options(output="json"), reactor=REACTOR, client=client, settings=settings)
        services = DaemonHere(root, settings)
        self.addCleanup(lambda: Deferred.fromCoroutine(services.stop([])))
        return World(cluster, session, services, TargetHost(cli, root, OPT, services))

    async def up(self, world: World, token: Token | None = None, **options: Any) -> dict[str, Any]:
        """Run `up -o json --yes`; returns its document."""
        with redirect_stdout(io.StringIO()) as output:
            await set_up(world.session, world.place, token, **{"yes": True, "timeout": CEILING, **options})
        found: dict[str, Any] = json.loads(output.getvalue())
        return found

    async def down(self, world: World, **options: Any) -> dict[str, Any]:
        """Run `down -o json --yes`; returns its document."""
        with redirect_stdout(io.StringIO()) as output:
            await take_down(world.session, world.place, **{"force": False, "dry_run": False, "yes": True, **options})
        found: dict[str, Any] = json.loads(output.getvalue())
        return found


async def stands_by(agent: Agent | None) -> None:
    """Wait until a daemon sees that another one leads."""

    async def check() -> bool:
        return agent is not None and isinstance(agent.state.value, StandingBy)

    await becomes(check, "a daemon that stands by", CEILING)


def no_userdel(*words: str) -> None:
    """Fail as a program does while another one changes users."""
    raise CliError(errors.HOST, f"{words[0]} failed: cannot lock /etc/passwd")


def deployment() -> dict[str, Any]:
    """Return a Deployment of the name that the daemon's has, without pods."""
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    return {"metadata": {"name": "liqod"}, "spec": spec}


def states(document: dict[str, Any]) -> dict[str, str]:
    """Return the state of each step."""
    return {step["step"]: step["state"] for step in document["steps"]}


class LifeTests(UpCase):
    async def test_before_and_after(self) -> None:
        """`up` runs a daemon with an account of its own, `down` leaves host and cluster as they were."""
        rome = self.rome
        before, objects = listing_of(rome.root), objects_of(rome.cluster)
        shown = await self.up(rome, dry_run=True)
        self.assertEqual((listing_of(rome.root), objects_of(rome.cluster)), (before, objects))
        self.assertFalse(shown["done"])
        document = await self.up(rome)
        self.assertEqual(states(document), states(shown))
        self.assertEqual(len(document["words"].split("-")), 10)
        self.assertEqual(rome.services.log, ["start"])
        config = load(str(rome.root / KUBECONFIG))
        assert config.token is not None
        self.assertEqual((rome.root / KUBECONFIG).stat().st_mode & 0o777, 0o640)
        removed = await self.down(rome)
        self.assertTrue(removed["done"])
        self.assertIn("Namespace liqo-system", removed["removed"])
        self.assertEqual(listing_of(rome.root), before)
        self.assertEqual(objects_of(rome.cluster), objects)
        self.assertEqual((await self.down(rome))["removed"], [])

    async def test_check(self) -> None:
        """`check` with the daemon's own rights, as `helm test` runs it, is well while one leads, and fails without."""
        await self.up(self.rome)
        client = Client(load(str(self.rome.root / KUBECONFIG)), REACTOR)
        self.addCleanup(lambda: Deferred.fromCoroutine(client.close()))
        session = attrs.evolve(self.rome.session, client=client)

        async def failed() -> list[str]:
            found = [one async for one in examine(session, pre=False) if one.verdict == "bad"]
            # A pod looks at no host.
            return [one.text for one in found if one.group not in ("Ports", "Network")]

        self.assertEqual(await failed(), [])
        await self.rome.services.stop([])
        self.assertIn("NoDaemon", "\n".join(await failed()))

    async def test_again(self) -> None:
        """A second run finds everything done, and writes nothing."""
        await self.up(self.rome)
        files = listing_of(self.rome.root)
        document = await self.up(self.rome, yes=False)
        self.assertEqual(set(states(document).values()), {"done"})
        self.assertEqual((listing_of(self.rome.root), self.rome.services.log), (files, ["start"]))

    async def test_interrupted(self) -> None:
        """A run that ended after any step is completed by the next one, which does only what is missing."""
        rome = self.rome
        rome.services.broken = True
        with self.assertRaises(CliError) as caught:
            await self.up(rome)
        self.assertIn("the reason, from its log", caught.exception.message)
        rome.services.broken = False
        document = await self.up(rome)
        self.assertEqual([name for name, state in states(document).items() if state == "needed"], ["service", "ready"])
        (rome.root / "usr/local/bin/liqodctl").unlink()
        document = await self.up(rome)
        self.assertEqual([name for name, state in states(document).items() if state == "needed"], ["host"])

    async def test_join(self) -> None:
        """With the token of one cluster the other one is set up and peers in the same run; then it is done."""
        milan = self.world("milan")
        made = (await self.up(self.rome, invite=True))["invitation"]
        token = read_token(made["token"])
        await self.up(milan, token)
        peer = await milan.session.client.get(FOREIGNCLUSTERS, token.issuer)
        self.assertEqual(peer["spec"]["fingerprint"], token.fingerprint)
        self.assertEqual(states(await self.up(milan, token))["peering"], "done")

    async def test_key_in_files(self) -> None:
        """With the cluster's key in files there is no Secret to wait for, and the words are those of the file."""
        folder = Path(self.mktemp())
        pair = load_or_create(folder, ClusterID("milan"), datetime.now(UTC))
        files = IdentitySettings(certificate=str(folder / "tls.crt"), key=str(folder / "tls.key"))
        milan = self.world("milan", identity=files)
        document = await self.up(milan, timeout=20.0)
        self.assertEqual((document["fingerprint"], document["words"]), (pair.fingerprint, words(pair.fingerprint)))
        self.assertEqual(set(states(await self.up(milan)).values()), {"done"})

    async def test_namespace_of_others(self) -> None:
        """A namespace that was there before stays, without anything of liqod in it."""
        await self.rome.session.client.create(NAMESPACES, {"metadata": {"name": "liqo-system"}})
        await becomes(self.has_account, "the namespace's own account", CEILING)
        objects = objects_of(self.rome.cluster)
        await self.up(self.rome)
        await self.down(self.rome)
        self.assertEqual(objects_of(self.rome.cluster), objects)

    async def test_down_beside_another_installation(self) -> None:
        """`down` deletes no definition that another installation has, even with --force, and changes nothing else."""
        await self.up(self.rome)
        client = self.rome.session.client
        name = manifests.definitions()[0]["metadata"]["name"]
        await client.patch(CRDS, name, {"metadata": {"annotations": {"meta.helm.sh/release-name": "liqo"}}})
        files, objects = listing_of(self.rome.root), objects_of(self.rome.cluster)
        for options in ({}, {"force": True}):
            with self.assertRaises(CliError) as caught:
                await self.down(self.rome, **options)
            self.assertIn(f"the CRD {name} is managed by the Helm release liqo", caught.exception.message)
        self.assertEqual((listing_of(self.rome.root), objects_of(self.rome.cluster)), (files, objects))
        self.assertEqual(self.rome.services.log, ["start"])

    async def test_interrupted_removal(self) -> None:
        """A removal of files that failed is completed by the next run, which stops no unit that is gone."""
        rome = self.rome
        before, objects = listing_of(rome.root), objects_of(rome.cluster)
        await self.up(rome)
        failing = self.patch(apply, "_run", no_userdel)
        with self.assertRaises(CliError):
            await self.down(rome)
        self.assertFalse((rome.root / "etc/systemd/system/liqod.service").exists())
        failing.restore()
        self.assertIn("the user liqod", (await self.down(rome))["removed"])
        self.assertEqual((listing_of(rome.root), objects_of(rome.cluster)), (before, objects))

    async def test_standby_takes_over(self) -> None:
        """`down` ends where a daemon of another host takes the lease, whatever its name begins with, and says which."""
        rome = self.rome
        await self.up(rome)
        standby = Agent(
            REACTOR,
            rome.services.settings,
            client_config=load(str(rome.root / KUBECONFIG)),
            hostname=f"{socket.gethostname()}-2",
        )
        standby.startService()
        self.addCleanup(standby.stopService)

        await stands_by(standby)
        for log in (["start", "stop"], ["start", "stop", "start"]):
            with self.assertRaises(CliError) as caught:
                await self.down(rome)
            self.assertIn(f"the daemon {socket.gethostname()}-2-", caught.exception.message)
            self.assertEqual(rome.services.log, log)
            await rome.session.client.get(CRDS, manifests.definitions()[0]["metadata"]["name"])
            # The second time the other one leads before.
            if rome.services.agent is None:
                rome.services.start("liqod.service", again=False)
                await stands_by(rome.services.agent)
        # With --force it does not look who leads, and waits for nobody.
        self.assertTrue((await self.down(rome, force=True))["done"])

    async def test_package(self) -> None:
        """Where a package has the host's files only the kubeconfig is written, and `down` leaves the package's."""
        units = self.rome.root / "usr/lib/systemd/system"
        units.mkdir()
        (units / "liqod.service").touch()
        (self.rome.root / "etc/liqod").mkdir()
        before = listing_of(self.rome.root)
        await self.up(self.rome)
        new = {path for path in listing_of(self.rome.root) if path not in before}
        self.assertEqual(new, {KUBECONFIG, "etc/liqod/host-installation.json"})
        await self.down(self.rome)
        self.assertEqual(listing_of(self.rome.root), before)

    async def has_account(self) -> bool:
        client = self.rome.session.client
        return bool((await client.list(SERVICEACCOUNTS, "liqo-system")).items)


class RefusalTests(UpCase):
    """What is in the way is said before anything was changed."""

    async def assert_refused(self, reason: str, token: Token | None = None, **options: Any) -> None:
        rome = self.rome
        files, objects = listing_of(rome.root), objects_of(rome.cluster)
        with self.assertRaises(CliError) as caught:
            await self.up(rome, token, **options)
        self.assertRegex(f"{caught.exception.message}\n{caught.exception.hint}", reason)
        self.assertEqual((listing_of(rome.root), objects_of(rome.cluster), rome.services.log), (files, objects, []))

    async def is_at_rest(self) -> bool:
        before = objects_of(self.rome.cluster)
        await deferLater(REACTOR, 0.3)
        return objects_of(self.rome.cluster) == before

    async def test_no_question(self) -> None:
        """Without a terminal and without --yes."""
        self.patch(sys, "stdin", io.StringIO())
        await self.assert_refused("confirmation is required.*\n.*--yes", yes=False)

    async def test_split_host(self) -> None:
        """The unit of one process would stop those of two."""
        await self.up(self.rome, dry_run=True)
        self.rome.services.others = {"liqod-control.service", "liqod-network.service"}
        await self.assert_refused("liqod-control.service and liqod-network.service .*\n.*ROLE=control liqodctl install")

    async def test_foreign_unit(self) -> None:
        """A unit that somebody else wrote."""
        (self.rome.root / "etc/systemd/system/liqod.service").write_text("[Service]\nExecStart=/bin/true\n")
        await self.assert_refused("liqod.service exists, and was not written by this command")

    async def test_user_who_may_log_in(self) -> None:
        """A person's account of the daemon's name."""
        with (self.rome.root / "etc/passwd").open("a") as file:
            file.write("liqod:x:1001:1001::/var/lib/liqod:/bin/bash\n")
        await self.assert_refused("there is a user liqod who may log in")

    async def test_no_systemd(self) -> None:
        """A host without systemd."""
        (self.rome.root / "usr/lib/systemd/systemd").unlink()
        await self.assert_refused("there is no systemd here")

    async def test_other_cluster(self) -> None:
        """What is left of the installation in another cluster, even if this program wrote it."""
        milan = self.world("milan")
        (self.rome.root / "etc/liqod").mkdir()
        (self.rome.root / KUBECONFIG).write_text(milan.cluster.kubeconfig())
        await self.assert_refused("is for another cluster; move it away")

    async def test_damaged_kubeconfig(self) -> None:
        """A file that is no kubeconfig."""
        (self.rome.root / "etc/liqod").mkdir()
        (self.rome.root / KUBECONFIG).write_text("nonsense")
        await self.assert_refused("cannot be used as a kubeconfig; move it away")

    async def test_occupied_port(self) -> None:
        """A port that another program has."""
        port = listening_port(self.rome.session.settings)
        with socket.socket() as other:
            other.bind(("127.0.0.1", port))
            other.listen()
            await self.assert_refused(rf"port {port} \(peering.listen\) is not available")

    async def test_token(self) -> None:
        """The token of a cluster that does not answer."""
        token = Token("ab", ClusterID("milan"), "milan", Fingerprint("sha256:" + "0" * 64), ["127.0.0.1:1"], b"x" * 32)
        await self.assert_refused("no liqod answers at 127.0.0.1:1", token)

    async def test_token_of_another_key(self) -> None:
        """A token whose address has a cluster with another key."""
        milan = self.world("milan")
        made = (await self.up(milan, invite=True))["invitation"]
        token = replace(read_token(made["token"]), fingerprint=Fingerprint("sha256:" + "0" * 64))
        await self.assert_refused("with another key than the token has", token)

    async def test_pods(self) -> None:
        """Pods of liqod in the cluster, regardless of who made them."""
        client = self.rome.session.client
        await client.create(NAMESPACES, {"metadata": {"name": "liqo-system"}})
        await client.create(DEPLOYMENTS, deployment(), "liqo-system")
        await becomes(self.is_at_rest, "a cluster at rest", CEILING)
        await self.assert_refused("liqod serves this cluster as pods.*; somebody else made liqod's pods")
        helm = {"metadata": {"annotations": {"meta.helm.sh/release-name": "mine"}}}
        await client.patch(DEPLOYMENTS, "liqod", helm, "liqo-system")
        await self.assert_refused("the Helm release mine has liqod's pods: .*`helm uninstall`")
        own = {"metadata": {"annotations": None, "labels": {"app.kubernetes.io/managed-by": "liqodctl"}}}
        await client.patch(DEPLOYMENTS, "liqod", own, "liqo-system")
        await self.assert_refused("`liqodctl down --in-cluster` removes them")

    async def test_rights(self) -> None:
        """A user who may make definitions, namespaces and accounts, and not all else that is written."""
        rome = self.rome
        some: dict[str, Any] = {"metadata": {"name": "some"}}
        settings, admin = rome.session.settings, rome.session.client
        kinds = (CRDS, NAMESPACES, CLUSTERROLES, CLUSTERROLEBINDINGS, SERVICEACCOUNTS, SECRETS)
        rules = [
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
            *({"apiGroups": [one.group], "resources": [one.plural], "verbs": ["*"]} for one in kinds),
            *(
                {"apiGroups": [one.resource.group], "resources": [one.what], "verbs": [one.verb]}
                for one in required(settings)
            ),
        ]
        await admin.create(CLUSTERROLES, {**some, "rules": rules})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "some"}
        subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "some"}]
        await admin.create(CLUSTERROLEBINDINGS, {**some, "roleRef": reference, "subjects": subjects})
        rome.cluster.add_user("secret", User("some", ("system:authenticated",)))
        client = Client(from_grant(rome.cluster.url, rome.cluster.authority.pem, lambda: "secret"), REACTOR)
        self.addCleanup(lambda: Deferred.fromCoroutine(client.close()))
        self.rome = attrs.evolve(rome, session=attrs.evolve(rome.session, client=client))
        for right in ("create runtimeclasses.node.k8s.io", "create priorityclasses.scheduling.k8s.io"):
            await self.assert_refused(f"may not {right}; use an administrator's")
