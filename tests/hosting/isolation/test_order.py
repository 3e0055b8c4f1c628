"""In which order labels and policies are written, so that no pod is open further than before and after."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_network
from typing import Any, cast

import msgspec
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.controller import After
from liqod.hosting.isolation import controller
from liqod.hosting.isolation.controller import LONGEST_PAUSE, PUT_RIGHT, TenantIsolation
from liqod.hosting.isolation.views import NetworkPolicy, digest_of
from liqod.hosting.networkpolicies.enforcement import enforcement
from liqod.hosting.shadowpods.isolation import widened
from liqod.hosting.tenants.bounds import KnownNetworks
from liqod.hosting.tenants.contract import Contract
from liqod.hosting.views import Pod
from liqod.kube.errors import KubeError, from_status
from liqod.kube.resources import NETWORKPOLICIES, PODS, Resource
from liqod.model.ids import Key
from liqod.model.names import ISOLATED_LABEL
from liqod.model.objects.node import Node
from liqod.model.records.facts import DISTRIBUTION, FACTS_NAME, PLUGIN, ClusterFacts
from liqod.model.records.home_policies import ShadowNetworkPolicySet, WholePolicySet
from liqod.model.records.network import AddressMap, Network, TunnelEndpoint
from tests.hosting.isolation.cases import CLOSED, TO_DATABASE, sent
from tests.hosting.shadowpods.test_controller import Cache, namespace

SPACE = "shop"
HOME = Key(SPACE, "home")


class Surrounding:
    """The networks around tenants: none that is known."""

    def __init__(self) -> None:
        self.own: list[Network] = []
        self.nodes: Any = Cache()
        self.tunnels: Any = Cache()
        self.decisions: Any = None
        self.is_awaited = False

    async def prepare(self) -> None:
        """Nothing is to be found out."""

    def around(self, tenant: str) -> KnownNetworks:
        return KnownNetworks(self.own)

    def has_tunnel(self, tenant: str) -> bool:
        return False

    def direct(self, tenant: str) -> dict[str, AddressMap]:
        return {}

    def is_same(self, old: Node | None, new: Node | None) -> bool:
        return True

    def is_same_facts(self, old: ClusterFacts | None, new: ClusterFacts | None) -> bool:
        return True


class Server:
    """Does what it is asked for, keeps in which order, and shows it to the caches as a watch does."""

    def __init__(self, policies: Cache, pods: Cache) -> None:
        self.policies = policies
        self.pods = pods
        self.log: list[str] = []
        self.record: Mapping[str, Any] = {}
        self.specs: dict[str, Any] = {}
        self.fails = ""
        self.version = 100
        self.answer: Deferred[None] = succeed(None)
        """What answers to reading a record wait for."""

    async def get(self, resource: Resource, name: str, namespace: str, **options: Any) -> WholePolicySet:
        await self.answer
        return WholePolicySet(spec=msgspec.Raw(msgspec.json.encode(self.record)))

    async def create(self, resource: Resource, body: Mapping[str, Any], namespace: str, **options: Any) -> Any:
        assert resource is NETWORKPOLICIES
        return self._policy(body["metadata"]["name"], body["spec"])

    async def patch(self, resource: Resource, name: str, patch: Any, namespace: str, **options: Any) -> Any:
        if resource is PODS:
            value = patch["metadata"]["labels"][ISOLATED_LABEL]
            self.log.append(f"label {name} {value or '-'}")
            old = self.pods.held[Key(namespace, name)]
            labels = {key: one for key, one in old.metadata.labels.items() if key != ISOLATED_LABEL}
            return self._show(self.pods, old, {**labels, **({ISOLATED_LABEL: value} if value else {})})
        return self._policy(name, patch[1]["value"])

    async def delete(self, resource: Resource, name: str, namespace: str, **options: Any) -> None:
        self._check(f"remove {name}")
        key = Key(namespace, name)
        old = self.policies.held.pop(key)
        for subscriber in list(self.policies.subscribers):
            subscriber(key, old, None)

    def _policy(self, name: str, spec: Any) -> NetworkPolicy:
        self._check(f"write {name}")
        self.specs[name] = spec
        body = {"metadata": {"name": name, "namespace": SPACE, "uid": name}, "spec": spec}
        made = msgspec.json.decode(msgspec.json.encode(body), type=NetworkPolicy)
        shown: NetworkPolicy = self._show(self.policies, made, {})
        return shown

    def _check(self, what: str) -> None:
        if self.fails and self.fails in what:
            raise from_status(500, b'{"message": "it fails"}')
        self.log.append(what)

    def _show(self, cache: Cache, thing: Any, labels: dict[str, str]) -> Any:
        self.version += 1
        meta = msgspec.structs.replace(thing.metadata, labels=labels, resource_version=str(self.version))
        made = msgspec.structs.replace(thing, metadata=meta)
        cache.put(made)
        return made


class OrderTests(SynchronousTestCase):
    """A namespace with two pods, of which one is named by a policy."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.namespaces, self.records, self.policies, self.pods, self.facts = (Cache() for _ in range(5))
        self.namespaces.put(namespace(SPACE, "rome"))
        self.server = Server(self.policies, self.pods)
        for name in ("web", "free"):
            meta = {"name": name, "namespace": SPACE, "uid": name, "labels": {"app": name}}
            self.pods.put(msgspec.convert({"metadata": meta, "status": {"phase": "Running"}}, Pod))
        caches: list[Any] = [self.namespaces, self.records, self.policies, self.pods, self.facts]
        self.surrounding = Surrounding()
        surrounding: Any = self.surrounding
        self.controller = TenantIsolation(
            cast(Any, self.server),
            self.clock,
            namespaces=caches[0],
            records=caches[1],
            policies=caches[2],
            pods=caches[3],
            facts=caches[4],
            networks=surrounding,
            contract=Contract(),
            recorder=cast(Any, self),
        )
        self.events: list[tuple[str, str, str]] = []
        self.addCleanup(self.controller.stopService)
        self.controller.startService()
        self.clock.pump([0.1] * 5)

    def send(self, **policies: Any) -> list[str]:
        """Have home send these policies; return what was done for it."""
        self.server.log.clear()
        self.server.record = sent(**policies)
        self.records.put(self.recorded())
        self.clock.pump([0.1] * 10)
        done: list[str] = self.server.log
        return list(done)

    def recorded(self) -> ShadowNetworkPolicySet:
        """Return what the server has, as the watch shows it."""
        meta = {"name": "home", "namespace": SPACE}
        text = msgspec.json.encode({"metadata": meta, "spec": self.server.record})
        return msgspec.json.decode(text, type=ShadowNetworkPolicySet)

    def lose(self) -> None:
        """Have the record gone."""
        self.server.log.clear()
        self.gone(self.records, HOME)

    def gone(self, cache: Cache, key: Key) -> None:
        """Show a cache that an object is gone."""
        old = cache.held.pop(key)
        for subscriber in list(cache.subscribers):
            subscriber(key, old, None)
        self.clock.pump([0.1] * 5)

    def of(self, app: str) -> str | None:
        return self.controller.of(SPACE, {"app": app}, awaited=True)

    def record_event(self, regarding: Mapping[str, str], type: str, reason: str, message: str) -> None:
        """Keep an event, for the controller."""
        self.events.append((regarding["name"], reason, message))

    def show_plugin(self, name: str) -> None:
        """Show the facts of a cluster with a network plugin."""
        found = [{"name": PLUGIN, "state": "Known", "values": [name]}]
        text = {"metadata": {"name": FACTS_NAME}, "status": {"facts": found}}
        self.facts.put(msgspec.convert(text, ClusterFacts))
        self.clock.pump([0.1] * 5)

    def test_bounds_without_effect(self) -> None:
        """One event of the namespace, and another one after a while in which they had an effect; none on a guess."""
        self.assertEqual(self.events, [])
        for plugin in ("flannel", "flannel", "calico", "flannel"):
            self.show_plugin(plugin)
        self.assertEqual([one[:2] for one in self.events], [(SPACE, "EgressNotBounded")] * 2)
        self.assertIn("flannel is not known to enforce", self.events[0][2])

    def test_more_isolated(self) -> None:
        """Labels come before policies, the floor before those that it is below."""
        self.assertEqual(self.server.log, ["write liqod-tenant"])
        self.assertIsNone(self.of("web"))
        done = self.send(web=TO_DATABASE)
        wanted = ["label web egress", "write liqod-tenant-floor", "write liqod-home-web", "write liqod-tenant"]
        self.assertEqual(done, wanted)
        self.assertEqual((self.of("web"), self.of("free")), ("egress", ""))
        self.assertEqual(self.send(web=TO_DATABASE), [])

    def test_less_isolated(self) -> None:
        """Labels go when the default is wide again, the floor as the last of the policies."""
        self.send(web=TO_DATABASE)
        wanted = ["write liqod-tenant", "remove liqod-home-web", "remove liqod-tenant-floor", "label web -"]
        self.assertEqual(self.send(), wanted)

    def test_one_more_one_less(self) -> None:
        """A pod that is isolated otherwise has both labels in between."""
        self.send(web={"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"]})
        done = self.send(web=TO_DATABASE)
        self.assertEqual(done, ["label web both", "write liqod-home-web", "label web egress"])

    def test_a_write_that_fails(self) -> None:
        """As long as not all is written no pod is created, and nothing is less isolated than it was."""
        self.send(web=TO_DATABASE)
        self.server.fails = "write liqod-home-all"
        self.assertEqual(self.send(all=CLOSED), ["label free both", "label web both"])
        self.assertIsNone(self.of("free"))
        self.server.fails = ""
        self.clock.pump([1.0] * 10)
        self.assertEqual(self.of("free"), "both")
        self.assertIn(Key(SPACE, "liqod-home-all"), self.policies.held)
        self.assertNotIn(Key(SPACE, "liqod-home-web"), self.policies.held)

    def test_a_newer_record(self) -> None:
        """Until it is compiled no pod is created."""
        self.send(web=TO_DATABASE)
        self.server.fails = "liqod"
        self.patch(self.server, "get", lambda *given, **options: Deferred())
        self.send(all=CLOSED)
        self.assertIsNone(self.of("free"))

    def test_a_home_without_policies(self) -> None:
        """Where there were none a record that is gone isolates nobody, and bounds are followed."""
        self.send()
        self.lose()
        self.surrounding.own = [ip_network("203.0.113.0/24")]
        self.controller.enqueue(Key("", SPACE))
        self.clock.pump([0.1] * 5)
        self.assertEqual((self.server.log, self.of("web")), (["write liqod-tenant"], ""))

    def test_bounds_that_change_without_a_record(self) -> None:
        """What stays of home's policies never opens what this cluster closed since: every pod is isolated."""
        self.send(web=TO_DATABASE)
        self.lose()
        self.assertEqual(self.server.log, [])
        self.surrounding.own = [ip_network("203.0.113.0/24")]
        self.controller.enqueue(Key("", SPACE))
        self.clock.pump([0.1] * 5)
        self.assertEqual((self.of("web"), self.of("free")), ("both", "both"))
        self.assertIn("203.0.113.0/24", str(self.server.specs["liqod-tenant"]))
        wanted = {Key(SPACE, name) for name in ("liqod-tenant", "liqod-tenant-floor", "liqod-tenant-closed")}
        self.assertEqual(set(self.policies.held), wanted)
        self.send(web=TO_DATABASE)
        self.assertEqual((self.of("web"), self.of("free")), ("egress", ""))

    def test_a_namespace_that_goes_while_it_is_granted(self) -> None:
        """Two requests for it are under way; when both have failed nothing is known of it any more."""
        self.send(web=TO_DATABASE)
        self.server.record, self.server.answer = sent(all=CLOSED), Deferred()
        self.records.put(self.recorded())
        requests = [Deferred.fromCoroutine(self.controller.apply("rome", SPACE)) for _ in range(2)]
        for cache in (self.namespaces, self.pods, self.policies, self.records):
            for key in list(cache.held):
                self.gone(cache, key)
        self.clock.advance(PUT_RIGHT)
        self.assertEqual(self.controller._known, {})
        self.server.fails = "write"
        self.server.answer.callback(None)
        for request in requests:
            self.failureResultOf(request, KubeError)
        self.assertEqual(self.controller._known, {})

    def test_pace(self) -> None:
        """A tenant whose record takes long to compile waits for the next compilation, at most for a minute."""
        self.send(web=TO_DATABASE)
        self.controller._due["rome"] = self.clock.seconds() + LONGEST_PAUSE
        self.assertEqual(self.send(all=CLOSED), [])
        self.clock.pump([1.0] * int(LONGEST_PAUSE + 1))
        self.assertEqual(self.of("free"), "both")

    def test_the_pace_of_small_records(self) -> None:
        """One that changes all the time, and with it the labels of many pods, costs few writes; the last one counts."""
        for number in range(98):
            meta = {"name": f"p{number}", "namespace": SPACE, "uid": f"p{number}", "labels": {"app": "free"}}
            self.pods.put(msgspec.convert({"metadata": meta, "status": {"phase": "Running"}}, Pod))
        self.server.log.clear()
        seconds = 30
        for number in range(seconds * 4):
            self.server.record = sent(**({"all": CLOSED} if number % 2 else {"web": TO_DATABASE}))
            self.records.put(self.recorded())
            self.clock.pump([0.05] * 5)
        self.assertLess(len(self.server.log), 2 * seconds / controller.EACH)
        self.assertGreater(len(self.server.log), 500)
        self.clock.pump([1.0] * 10)
        self.assertEqual((self.of("free"), self.of("web")), ("both", "both"))

    def test_which_changes_of_a_tunnel_count(self) -> None:
        """The namespaces of its tenant are looked at when a network of the tunnel is another one, or there is none;
        what else changes in the record, as it does with every address of a pod, costs nothing."""
        self.clock.pump([1.0] * int(PUT_RIGHT + 2))
        seen: list[str] = []
        reconcile = self.controller.reconcile

        async def counted(key: Key) -> After | None:
            seen.append(key.name)
            return await reconcile(key)

        self.patch(self.controller, "reconcile", counted)
        spec: dict[str, Any] = {"publicKey": "a"}

        def looked_at(tenant: str = "rome", **changes: Any) -> list[str]:
            seen.clear()
            spec.update(changes)
            meta = {"name": tenant}
            self.surrounding.tunnels.put(msgspec.convert({"metadata": meta, "spec": spec}, TunnelEndpoint))
            self.clock.pump([0.1] * 5)
            return list(seen)

        self.assertEqual(looked_at("milan"), [])
        self.assertEqual(looked_at(), [SPACE])
        self.assertEqual(looked_at(), [])
        self.assertEqual(looked_at(publicKey="b", guests=["10.64.0.9"], mtu=1400), [])
        for field in ("local", "localSeen", "remote", "remoteSeen"):
            spec[field] = {"podCIDRs": ["10.65.0.0/16"]}
            self.assertEqual(looked_at(), [SPACE], field)
            self.assertEqual(looked_at(), [], field)
        seen.clear()
        self.gone(self.surrounding.tunnels, Key("", "rome"))
        self.assertEqual(seen, [SPACE])

    def test_a_former_tenant_is_forgotten(self) -> None:
        """Who is not here any more waits for nothing; nor does one whose wait is over."""
        self.patch(controller, "SMALL", 0)
        self.patch(controller, "deferToThread", lambda work: succeed(work()))
        now = self.clock.seconds()
        self.controller._due |= {"milan": now - 1, "turin": now + 30}
        self.send(web=TO_DATABASE)
        self.assertEqual(set(self.controller._due), {"rome", "turin"})


class ValueTests(SynchronousTestCase):
    """Labels, digests and what enforces."""

    def test_widened(self) -> None:
        """Each direction that one of two values has."""
        values = ("", "ingress", "egress", "both")
        for one in values:
            self.assertEqual((widened(one, ""), widened("", one), widened(one, one)), (one, one, one))
            self.assertEqual((widened(one, "both"), widened("both", one)), ("both", "both"))
        self.assertEqual(widened("ingress", "egress"), "both")

    def test_digests(self) -> None:
        """A spec as the API server returns it, without what is empty, is the same; one that means more is not."""
        spec = {"podSelector": {"matchLabels": None}, "policyTypes": ["Egress"], "egress": []}
        same = {"policyTypes": ["Egress"], "podSelector": {}}
        self.assertEqual(digest_of(spec), digest_of(same))
        self.assertNotEqual(digest_of(same), digest_of({**same, "egress": [{}]}))
        read = msgspec.json.decode(msgspec.json.encode({"metadata": {"name": "x"}, "spec": spec}), type=NetworkPolicy)
        again = msgspec.structs.replace(read, metadata=read.metadata)
        self.assertEqual((read.digest, again.digest), (digest_of(same), digest_of(same)))

    def test_enforcement(self) -> None:
        """What is not known to enforce policies is not relied on, whatever the distribution is."""
        table: tuple[tuple[list[str], str, bool], ...] = (
            (["calico"], "", True),
            (["cilium"], "kubeadm", True),
            (["kube-router"], "", True),
            (["flannel", "kube-router"], "k3s", True),
            (["flannel"], "k3s", False),
            (["flannel"], "kubeadm", False),
            (["kindnet"], "kind", False),
            (["aws-vpc-cni"], "eks", False),
            ([], "", False),
            ([], "k3s", False),
        )
        for plugins, distribution, enforced in table:
            facts = [{"name": PLUGIN, "values": plugins}, {"name": DISTRIBUTION, "values": [distribution]}]
            found = enforcement(msgspec.convert({"status": {"facts": facts}}, ClusterFacts))
            self.assertEqual(found.enforced, enforced, (plugins, distribution))
            self.assertIn(plugins[-1 if enforced else 0] if plugins else "not known", found.message)
        self.assertFalse(enforcement(None).enforced)
