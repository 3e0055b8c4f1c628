"""What is concluded from what distributions and network plugins leave in a cluster."""

from __future__ import annotations

import json
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.load import parse
from liqod.config.schema import Settings
from liqod.facts.decide import decide
from liqod.facts.node_address import node_address_type
from liqod.facts.observed import (
    API_ENDPOINTS,
    API_SERVICE,
    CIDRS,
    CILIUM,
    FLANNEL,
    KUBE_PROXY,
    KUBE_PROXY_PODS,
    KUBEADM,
    OPENSHIFT,
    PLACES,
    PLUGINS,
    POOLS,
    ObjectSelector,
    ObservedCluster,
    arguments_of,
)
from liqod.kube.resources import DAEMONSETS
from liqod.model.objects.meta import ObjectMeta
from liqod.model.objects.node import Node, NodeInfo, NodeSpec, NodeStatus
from liqod.model.records.facts import (
    API_SERVER,
    API_SERVER_NAMES,
    DAEMON_ADDRESSES,
    DISTRIBUTION,
    DOMAIN,
    PLUGIN,
    POD_NETWORKS,
    PROXY,
    SERVICE_NETWORKS,
    Fact,
    fact_of,
)

KEYS = (
    "items cidrs data spec status cidr clusterNetwork serviceNetwork clusterIPs endpoints addresses ports template "
    "containers"
)
CALICO = ObjectSelector(DAEMONSETS, "calico-node", "calico-system")
KINDNET = ObjectSelector(DAEMONSETS, "kindnet", "kube-system")
AWS = ObjectSelector(DAEMONSETS, "aws-node", "kube-system")
KUBEADM_TEXT = """
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
controlPlaneEndpoint: api.example.com:6443
networking: {podSubnet: "10.244.0.0/16,fd00:10:244::/56", serviceSubnet: 10.96.0.0/12, dnsDomain: cluster.local}
"""


def node(version: str = "", *, pods: tuple[str, ...] = (), labels: Any = None, notes: Any = None, **more: str) -> Node:
    """Return a node as its kubelet would show it."""
    return Node(
        metadata=ObjectMeta(name="one", labels=labels or {}, annotations=notes or {}),
        spec=NodeSpec(pod_cidrs=list(pods), provider_id=more.get("provider", "")),
        status=NodeStatus(node_info=NodeInfo(kubelet_version=version, os_image=more.get("image", ""))),
    )


def config_map(**data: str) -> dict[str, Any]:
    """Return a ConfigMap; underscores in keys stand for dots."""
    return {"data": {key.replace("__", ".").replace("_", "-"): value for key, value in data.items()}}


def rancher(*words: str) -> Node:
    """Return a server of k3s that was started with these words."""
    return node("v1.35.0+k3s1", pods=("10.42.0.0/24",), notes={"k3s.io/node-args": json.dumps(["server", *words])})


def seen(*nodes: Node, server: str = "https://192.0.2.1:6443", host: str = "192.0.2.1", **more: Any) -> ObservedCluster:
    """Return what was observed: every place that is not named was read and is empty."""
    objects = {**dict.fromkeys(PLACES), **more.get("objects", {})}
    if "service_cidrs" in more:
        objects[CIDRS] = {"items": [{"spec": {"cidrs": more["service_cidrs"]}}]}
    for place in more.get("unread", ()):
        del objects[place]
    return ObservedCluster(
        nodes=nodes,
        objects=objects,
        service_ranges=more.get("service_ranges", ()),
        server=server,
        host=host,
        version="v1.35",
    )


def pools(*networks: str) -> dict[ObjectSelector, Any]:
    """Return the IPPools of Calico, by their networks."""
    return {POOLS: {"items": [{"spec": {"cidr": one}} for one in networks]}}


def found(name: str, observed: ObservedCluster, settings: Settings | None = None) -> tuple[str, list[str]]:
    """Return state and values of one fact."""
    fact = fact_of(decide(observed, settings or Settings()), name)
    return fact.state, fact.values


class DomainTests(SynchronousTestCase):
    """The domain of the cluster's own names."""

    def test_sources(self) -> None:
        """It is what kubeadm or a server of k3s has as its own; a text that is no domain says nothing."""
        kubeadm = {KUBEADM: config_map(ClusterConfiguration=KUBEADM_TEXT)}
        broken = {KUBEADM: config_map(ClusterConfiguration="networking: {dnsDomain: Not A Domain}")}
        for observed, expected in (
            (seen(objects=kubeadm), ("Known", ["cluster.local"])),
            (seen(rancher("--cluster-domain", "home.example")), ("Known", ["home.example"])),
            (seen(rancher()), ("Unknown", [])),
            (seen(objects=broken), ("Unknown", [])),
            (seen(), ("Unknown", [])),
        ):
            with self.subTest(expected=expected):
                self.assertEqual(found(DOMAIN, observed), expected)


class TableTests(SynchronousTestCase):
    def test_distribution(self) -> None:
        """A distribution is known by its marks, the more special ones first."""
        kubeadm = {KUBEADM: config_map(ClusterConfiguration=KUBEADM_TEXT)}
        for case, expected in (
            (seen(node("v1.35.0+k3s1")), "k3s"),
            (seen(node("v1.35.0+rke2r1")), "rke2"),
            (seen(node("v1.35.0+k0s.0")), "k0s"),
            (seen(node("v1.35.0-gke.100")), "gke"),
            (seen(node("v1.35.0-eks-abc")), "eks"),
            (seen(node("v1.35.0", labels={"microk8s.io/cluster": "true"})), "microk8s"),
            (seen(node("v1.35.0", labels={"kubernetes.azure.com/cluster": "c"})), "aks"),
            (seen(node("v1.35.0", provider="kind://docker/a/b"), objects=kubeadm), "kind"),
            (seen(node("v1.35.0", image="Talos (v1.11)")), "talos"),
            (seen(node("v1.35.0"), objects={OPENSHIFT: {}}), "openshift"),
            (seen(node("v1.35.0"), objects=kubeadm), "kubeadm"),
        ):
            self.assertEqual(found(DISTRIBUTION, case), ("Known", [expected]))
        self.assertEqual(found(DISTRIBUTION, seen(node("v1.35.0"))), ("Unknown", []))

    def test_pod_networks(self) -> None:
        """What hands out the addresses counts before what was planned, and that before what nodes show."""
        kubeadm = {KUBEADM: config_map(ClusterConfiguration=KUBEADM_TEXT)}
        here = node(pods=("10.201.3.0/24",))
        cilium: Any = {ObjectSelector(DAEMONSETS, "cilium", "kube-system"): {}}
        pool = config_map(ipam="cluster-pool", cluster_pool_ipv4_cidr="10.0.0.0/8")
        for case, expected in (
            (seen(here), ("Assumed", ["10.201.0.0/16"])),
            (seen(here, objects=kubeadm), ("Known", ["10.244.0.0/16", "fd00:10:244::/56"])),
            (seen(here, objects={**kubeadm, **cilium, CILIUM: pool}), ("Known", ["10.0.0.0/8"])),
            # Left over from a plugin that is gone, or used as the nodes say: neither hands out addresses.
            (seen(here, objects={CILIUM: pool}), ("Assumed", ["10.201.0.0/16"])),
            (seen(here, objects={**cilium, CILIUM: config_map(ipam="kubernetes")}), ("Assumed", ["10.201.0.0/16"])),
            (seen(here, objects={**kubeadm, CALICO: {}, **pools("10.48.0.0/16")}), ("Known", ["10.48.0.0/16"])),
            (
                seen(objects={CALICO: {}, **pools("10.48.0.0/16", "10.7.0.0/20")}),
                ("Known", ["10.48.0.0/16", "10.7.0.0/20"]),
            ),
            # Calico without pools has others hand out the addresses.
            (seen(here, objects={CALICO: {}, **pools()}), ("Assumed", ["10.201.0.0/16"])),
            (
                seen(
                    here,
                    objects={
                        ObjectSelector(DAEMONSETS, "kube-flannel-ds", "kube-flannel"): {},
                        FLANNEL: config_map(net_conf__json='{"Network": "10.245.0.0/16"}'),
                    },
                ),
                ("Known", ["10.245.0.0/16"]),
            ),
            (
                seen(
                    objects={OPENSHIFT: {"status": {"clusterNetwork": [{"cidr": "10.128.0.0/14", "hostPrefix": 23}]}}}
                ),
                ("Known", ["10.128.0.0/14"]),
            ),
            (seen(rancher("--cluster-cidr", "10.52.0.0/16")), ("Known", ["10.52.0.0/16"])),
            (seen(rancher("--cluster-cidr=10.52.0.0/16,fd00::/48")), ("Known", ["10.52.0.0/16", "fd00::/48"])),
            (
                seen(rancher("--cluster-cidr=10.52.0.0/16", "--cluster-cidr", "fd00::/48")),
                ("Known", ["10.52.0.0/16", "fd00::/48"]),
            ),
            (seen(rancher()), ("Assumed", ["10.42.0.0/16"])),
            (
                seen(here, objects={KUBE_PROXY: config_map(config__conf="clusterCIDR: 10.99.0.0/16")}),
                ("Known", ["10.99.0.0/16"]),
            ),
            (seen(node()), ("Unknown", [])),
            (seen(node(pods=("no network", "0.0.0.0/0"))), ("Unknown", [])),
        ):
            self.assertEqual(found(POD_NETWORKS, case), expected)

    def test_pod_networks_that_no_object_names(self) -> None:
        """Where a plugin hands out other addresses than those that are named here, nothing is concluded from these."""
        kubeadm = {KUBEADM: config_map(ClusterConfiguration=KUBEADM_TEXT)}
        here = node(pods=("10.201.3.0/24",))
        cilium: Any = {**kubeadm, ObjectSelector(DAEMONSETS, "cilium", "kube-system"): {}}
        own = parse('[network]\npod-cidrs = ["10.7.0.0/16"]', {})
        for objects in (
            {**cilium, CILIUM: config_map(ipam="eni")},
            {**cilium, CILIUM: config_map(ipam="cluster-pool")},
            {**cilium, CILIUM: config_map(ipam="multi-pool", cluster_pool_ipv4_cidr="10.0.0.0/8")},
            {**cilium, CILIUM: config_map(ipam="kubernetes", cni_chaining_mode="aws-cni")},
            {**kubeadm, AWS: {}},
            # Calico for policies alone, whose pool is not used.
            {**kubeadm, AWS: {}, CALICO: {}, **pools("192.168.0.0/16")},
            {**kubeadm, CALICO: {}},
        ):
            fact = fact_of(decide(seen(here, objects=objects), Settings()), POD_NETWORKS)
            self.assertEqual((fact.state, fact.values), ("Unknown", []), objects)
            self.assertIn("set pod-cidrs under [network]", fact.message)
            self.assertEqual(found(POD_NETWORKS, seen(here, objects=objects), own), ("Known", ["10.7.0.0/16"]))

    def test_settings_override(self) -> None:
        """What the settings name is what is known, whatever was found."""
        settings = parse(
            '[network]\npod-cidrs = ["10.7.0.0/16"]\nservice-cidrs = ["10.8.0.0/16"]\n'
            '[kubernetes]\napi-server-url = "https://api.example.org"\n[peering]\nadvertise-addresses = ["192.0.2.9"]',
            {},
        )
        case = seen(rancher(), service_cidrs=["10.43.0.0/16"])
        for name, value in (
            (POD_NETWORKS, "10.7.0.0/16"),
            (SERVICE_NETWORKS, "10.8.0.0/16"),
            (API_SERVER, "https://api.example.org"),
            (DAEMON_ADDRESSES, "192.0.2.9"),
        ):
            self.assertEqual(found(name, case, settings), ("Known", [value]))

    def test_service_networks(self) -> None:
        """The ServiceCIDRs count; clusters that have none are asked otherwise, at last by an address."""
        kubeadm = {KUBEADM: config_map(ClusterConfiguration=KUBEADM_TEXT)}
        api = {API_SERVICE: {"spec": {"clusterIPs": ["10.96.0.1", "fd00:96::1"]}}}
        for case, expected in (
            (seen(service_cidrs=["10.30.0.0/16"], objects=kubeadm), ("Known", ["10.30.0.0/16"])),
            (seen(service_cidrs=[], objects=kubeadm), ("Known", ["10.96.0.0/12"])),
            (seen(objects=kubeadm), ("Known", ["10.96.0.0/12"])),
            (seen(rancher("--service-cidr", "10.53.0.0/16"), objects=api), ("Known", ["10.53.0.0/16"])),
            (
                seen(rancher("--service-cidr", "10.53.0.0/16", "--service-cidr", "fd01::/112"), objects=api),
                ("Known", ["10.53.0.0/16", "fd01::/112"]),
            ),
            (seen(rancher(), objects=api), ("Assumed", ["10.43.0.0/16"])),
            # It is in a network of Services, which may be as wide as a /12.
            (seen(objects=api), ("Unknown", [])),
            (
                seen(objects={OPENSHIFT: {"status": {"serviceNetwork": ["172.30.0.0/16"]}}}),
                ("Known", ["172.30.0.0/16"]),
            ),
            (seen(service_ranges=["10.112.0.0/12"], objects=api), ("Known", ["10.112.0.0/12"])),
            # A part of them would leave the others open to tenants.
            (seen(service_cidrs=[f"10.{number}.0.0/24" for number in range(17)]), ("Unknown", [])),
            (seen(), ("Unknown", [])),
        ):
            self.assertEqual(found(SERVICE_NETWORKS, case), expected)

    def test_plugin(self) -> None:
        """Every plugin is known by its DaemonSet; flannel inside k3s by what it writes to nodes."""
        for place, name in PLUGINS.items():
            self.assertEqual(found(PLUGIN, seen(objects={place: {}})), ("Known", [name]))
        backend = node(notes={"flannel.alpha.coreos.com/backend-type": "vxlan"})
        self.assertEqual(found(PLUGIN, seen(backend)), ("Known", ["flannel"]))
        self.assertEqual(found(PLUGIN, seen(node())), ("Unknown", []))

    def test_policies_inside_k3s(self) -> None:
        """Its controller for NetworkPolicies counts where each server shows that it was not started without it."""
        both = ["flannel", "kube-router"]
        for servers, expected in (
            ([["server"]], both),
            ([["server", "--disable", "traefik", "--disable-network-policy=false"]], both),
            ([["server", "--disable-network-policy"]], ["flannel"]),
            ([["server", "--disable-network-policy", "-v", "3"]], ["flannel"]),
            ([["server", "--disable-network-policy=true"]], ["flannel"]),
            ([["server"], ["server", "--disable-network-policy"]], ["flannel"]),
            ([["server"], ["agent"]], both),
            ([["agent"]], ["flannel"]),
            ([], ["flannel"]),
        ):
            backend = node("v1.35.0+k3s1", notes={"flannel.alpha.coreos.com/backend-type": "vxlan"})
            nodes = [node("v1.35.0+k3s1", notes={"k3s.io/node-args": json.dumps(words)}) for words in servers]
            self.assertEqual(found(PLUGIN, seen(backend, *nodes)), ("Known", expected), servers)
        rke2 = node(notes={"rke2.io/node-args": '["server"]', "flannel.alpha.coreos.com/backend-type": "vxlan"})
        self.assertEqual(found(PLUGIN, seen(rke2)), ("Known", ["flannel"]))
        self.assertEqual(found(PLUGIN, seen(rancher(), objects={CALICO: {}})), ("Known", ["calico"]))

    def test_proxy(self) -> None:
        """The command line of kube-proxy's pods overrides its configuration; what replaces it is named."""
        replaced = config_map(kube_proxy_replacement="true")
        pods = {"spec": {"template": {"spec": {"containers": [{"command": ["kube-proxy", "--proxy-mode=nftables"]}]}}}}
        for case, expected in (
            (seen(objects={KUBE_PROXY: config_map(config__conf='mode: ""')}), ("Known", ["iptables"])),
            (seen(objects={KUBE_PROXY: config_map(config__conf="mode: ipvs")}), ("Known", ["ipvs"])),
            (
                seen(objects={KUBE_PROXY: config_map(config__conf="mode: ipvs"), KUBE_PROXY_PODS: pods}),
                ("Known", ["nftables"]),
            ),
            (seen(objects={CILIUM: replaced}), ("Known", ["cilium"])),
            (seen(objects={CILIUM: replaced, KUBE_PROXY_PODS: pods}), ("Known", ["nftables"])),
            (seen(rancher()), ("Assumed", ["iptables"])),
            (seen(rancher("--kube-proxy-arg", "proxy-mode=ipvs")), ("Known", ["ipvs"])),
            (seen(rancher("--disable-kube-proxy")), ("Unknown", [])),
            (seen(), ("Unknown", [])),
        ):
            self.assertEqual(found(PROXY, case), expected)

    def test_api_server(self) -> None:
        """The daemon's own URL counts unless only its host or its cluster reaches that."""
        kubeadm = {KUBEADM: config_map(ClusterConfiguration=KUBEADM_TEXT)}
        slices = {
            API_ENDPOINTS: {"endpoints": [{"addresses": ["192.0.2.5"]}], "ports": [{"name": "https", "port": 6444}]}
        }
        services = {"service_cidrs": ["10.96.0.0/12"]}
        own = {API_SERVICE: {"spec": {"clusterIPs": ["10.96.0.1", "odd"]}}}
        for server, more, expected in (
            ("https://192.0.2.1:6443", {}, ("Known", ["https://192.0.2.1:6443"])),
            ("https://api.example.net", {}, ("Known", ["https://api.example.net"])),
            ("https://127.0.0.1:6443", {}, ("Unknown", [])),
            ("https://[::1]:6443", {}, ("Unknown", [])),
            ("https://localhost:6443", {"objects": slices}, ("Assumed", ["https://192.0.2.5:6444"])),
            ("https://127.0.0.1:6443", {"objects": {**kubeadm, **slices}}, ("Known", ["https://api.example.com:6443"])),
            ("https://10.96.0.1:443", {**services, "objects": slices}, ("Assumed", ["https://192.0.2.5:6444"])),
            ("https://10.96.0.1:443", {"objects": {**own, **slices}}, ("Assumed", ["https://192.0.2.5:6444"])),
            ("https://kubernetes.default.svc", {"objects": slices}, ("Assumed", ["https://192.0.2.5:6444"])),
        ):
            self.assertEqual(found(API_SERVER, seen(server=server, **more)), expected, server)

    def test_daemon_addresses(self) -> None:
        """The daemon's host shows where it is reached, unless that is no address for others."""
        pods = node(pods=("10.201.3.0/24",))
        for host, expected in (
            ("192.0.2.7", ("Assumed", ["192.0.2.7"])),
            ("127.0.0.1", ("Unknown", [])),
            ("10.201.9.9", ("Unknown", [])),
            ("", ("Unknown", [])),
        ):
            self.assertEqual(found(DAEMON_ADDRESSES, seen(pods, host=host)), expected, host)

    def test_daemon_in_a_pod(self) -> None:
        """While the networks of pods are not known, who reaches the API server by its Service may run in a pod."""
        own = {API_SERVICE: {"spec": {"clusterIPs": ["10.96.0.1"]}}}
        known = node(pods=("10.201.3.0/24",))
        for server, nodes, expected in (
            ("https://10.96.0.1:443", (), []),
            ("https://kubernetes.default.svc", (), []),
            ("https://10.96.0.1:443", (known,), ["10.44.0.9"]),
            ("https://192.0.2.1:6443", (), ["10.44.0.9"]),
            ("https://127.0.0.1:6443", (), ["10.44.0.9"]),
        ):
            case = seen(*nodes, server=server, host="10.44.0.9", objects=own)
            self.assertEqual(found(DAEMON_ADDRESSES, case)[1], expected, (server, nodes))

    def test_daemon_address_that_is_set(self) -> None:
        """The source of the host's address is the setting, where that is set."""
        settings = parse('[kubelet]\nnode-address = "192.0.2.7"', {})
        fact = fact_of(decide(seen(host="192.0.2.7"), settings), DAEMON_ADDRESSES)
        self.assertEqual((fact.state, fact.source), ("Assumed", "setting kubelet.node-address"))

    def test_node_address_type(self) -> None:
        """Clusters that would take a virtual node for a real one are shown no InternalIP; a setting overrides that."""
        for case, expected in (
            (seen(node("v1.35.0")), "InternalIP"),
            (seen(), "InternalIP"),
            (seen(node("v1.35.0+k3s1")), "Hostname"),
            (seen(node("v1.35.0+rke2r1")), "Hostname"),
            (seen(objects={KINDNET: {}}), "Hostname"),
            (seen(objects={CALICO: {}}), "InternalIP"),
        ):
            facts = decide(case, Settings())
            self.assertEqual(node_address_type(facts, Settings()), expected)
            for wanted in ("InternalIP", "Hostname"):
                settings = parse(f'[kubelet]\nnode-address-type = "{wanted}"', {})
                self.assertEqual(node_address_type(facts, settings), wanted)


class PropertyTests(SynchronousTestCase):
    def test_unreadable_is_not_absent(self) -> None:
        """What was known stays while its source cannot be read, and goes when the source is seen to be gone."""
        known = decide(seen(objects={KINDNET: {}}), Settings())
        unread = decide(seen(unread=[KINDNET]), Settings(), known)
        self.assertEqual(fact_of(unread, PLUGIN).values, ["kindnet"])
        self.assertEqual(fact_of(decide(seen(), Settings(), known), PLUGIN).values, [])

    def test_certificate_not_seen(self) -> None:
        """The names in a certificate that could not be seen now stay; those of one that has none are gone."""
        known = decide(attrs.evolve(seen(objects={KINDNET: {}}), server_names=["api.example.com"]), Settings())
        for names, expected in ((None, ["api.example.com"]), ((), []), (["other.example.com"], ["other.example.com"])):
            facts = decide(attrs.evolve(seen(), server_names=names), Settings(), known)
            self.assertEqual(fact_of(facts, API_SERVER_NAMES).values, expected)
            self.assertEqual(fact_of(facts, PLUGIN).values, [])

    def test_what_may_not_be_read_comes_first(self) -> None:
        """A source that may not be read might say something else than those after it: none of these counts."""
        kubeadm = {KUBEADM: config_map(ClusterConfiguration=KUBEADM_TEXT)}
        here = node(pods=("10.201.3.0/24",))
        cilium = ObjectSelector(DAEMONSETS, "cilium", "kube-system")
        for name, objects, unread in (
            (SERVICE_NETWORKS, kubeadm, CIDRS),
            (SERVICE_NETWORKS, {}, KUBEADM),
            (POD_NETWORKS, kubeadm, cilium),
            (POD_NETWORKS, {**kubeadm, cilium: {}}, CILIUM),
            (POD_NETWORKS, {**kubeadm, CALICO: {}}, POOLS),
            (POD_NETWORKS, kubeadm, OPENSHIFT),
            (POD_NETWORKS, {}, KUBEADM),
        ):
            case = seen(here, rancher(), objects=objects, unread=[unread])
            fact = fact_of(decide(case, Settings()), name)
            self.assertEqual((fact.state, fact.values), ("Unknown", []), (name, str(unread)))
            self.assertIn("may not be read", fact.message)
            before = [Fact(name=name, state="Known", values=["10.9.0.0/16"], source="before")]
            self.assertEqual(fact_of(decide(case, Settings(), before), name).values, ["10.9.0.0/16"])

    def test_unknown_says_what_to_set(self) -> None:
        """Each fact that others need, and that is not known, names the setting."""
        facts = decide(seen(server="https://localhost", host="::1"), Settings())
        for name, setting in (
            (POD_NETWORKS, "pod-cidrs under [network]"),
            (SERVICE_NETWORKS, "service-cidrs under [network]"),
            (API_SERVER, "api-server-url under [kubernetes]"),
            (DAEMON_ADDRESSES, "advertise-addresses under [peering]"),
        ):
            fact = fact_of(facts, name)
            self.assertEqual((fact.state, fact.source), ("Unknown", ""))
            self.assertIn(setting, fact.message)

    def test_repeated_options(self) -> None:
        """Of options that are repeated the last one counts, but for the lists of networks."""
        words = ("--cluster-cidr=10.52.0.0/16,fd00::/48", "--flannel-backend", "vxlan", "--cluster-cidr")
        found = arguments_of([rancher(*words, "10.54.0.0/16", "--flannel-backend=none")])
        self.assertEqual(found, {"cluster-cidr": "10.52.0.0/16,fd00::/48,10.54.0.0/16", "flannel-backend": "none"})

    def test_agents_show_nothing_of_the_server(self) -> None:
        """The command line of an agent, or text that is no list, is no server's."""
        for text in ('["agent","--cluster-cidr","10.9.0.0/16"]', "'[\"server\"]'", "{}", "[1]", ""):
            self.assertIsNone(arguments_of([node(notes={"k3s.io/node-args": text})]), text)

    @given(
        st.dictionaries(
            st.sampled_from(PLACES),
            st.recursive(
                st.none() | st.text(max_size=20) | st.integers() | st.just(KUBEADM_TEXT) | st.just("[: }{"),
                lambda inner: (
                    st.lists(inner, max_size=2)
                    | st.dictionaries(
                        st.sampled_from([*KEYS.split(), "ClusterConfiguration", "config.conf"]),
                        inner,
                        max_size=3,
                    )
                ),
                max_leaves=8,
            ).filter(lambda value: isinstance(value, dict)),
        ),
        st.text(max_size=40),
    )
    def test_any_object(self, objects: Any, server: str) -> None:
        """Objects of any shape give each fact once, within the record's bounds, and no error."""
        facts = decide(seen(objects=objects, server=server), Settings())
        self.assertEqual(len({fact.name for fact in facts}), len(facts))
        for fact in facts:
            self.assertEqual(bool(fact.values), fact.state != "Unknown", fact)
            self.assertIsInstance(fact, Fact)
            self.assertLessEqual(max([len(fact.source), len(fact.message), *map(len, fact.values)]), 256)
