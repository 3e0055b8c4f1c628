"""Checks that the type of a setting cannot express: endpoints, quantities, addresses, settings that need each other.

Nothing is opened or bound here: every check takes the settings and yields complaints, each in the form
``section.key = value: what is allowed``.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from twisted.internet.endpoints import serverFromString

from liqod.config.allowed import shown
from liqod.config.endpoints import is_loopback, is_one_place, is_tcp, port_of
from liqod.config.schema import OF_TENANT, HostingSettings, Settings
from liqod.model.addresses import is_ip
from liqod.model.api_url import api_url_problem
from liqod.model.host_port import host_of, split_address
from liqod.model.ids import is_dns_label
from liqod.model.objects import label_selector
from liqod.model.objects.quantity import parse as parse_quantity
from liqod.model.records import hours
from liqod.model.records.offer import MAX_CLASSES, MAX_LABELS, MAX_RESOURCES
from liqod.model.records.offer_rules import (
    MAX_TTL,
    is_dns_name,
    is_gateway,
    is_label_value,
    is_qualified_name,
    is_reserved,
    is_ttl,
    reserved_message,
)

MAX_SLICE_CLASSES: Final = 32
"""Classes of slices that a cluster may have."""
_GRANTED_KEY = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_./]{0,316})?")
_SERVICE = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?/[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?(?::([1-9][0-9]{0,4}))?")
_SIGNER = re.compile(r"(?=.{1,571}$)[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9._]*[A-Za-z0-9])?")
_HOST = "must be a name such as shop.example or {tenant}.shop.example, without *"
_VOLUME_KIND = re.compile(r"[a-z][A-Za-z]{0,62}")
_NODE_PATH = re.compile(r"(/(\*|[A-Za-z0-9_.-]+)){2,16}")
_PRIORITY = "must be the name of a PriorityClass, or empty for the cluster's default"
_NAMESPACE_PATTERN = re.compile(r"[a-z0-9*]([-a-z0-9*]{0,61}[a-z0-9*])?")

MAX_RULES = 256
"""Rules under [egress] at most: each is tried for each object."""

ENDPOINT = "an endpoint such as tcp:5872, tcp:5872:interface=10.0.0.1 or systemd:domain=INET:name=liqod"


def problems(settings: Settings) -> list[str]:
    """Return every complaint about settings that are well-typed but do not make sense, in the order of the file."""
    return [
        *_kubernetes(settings),
        *_identity(settings),
        *_discovery(settings),
        *_peering(settings),
        *_sharing(settings),
        *_slices(settings),
        *_offer(settings),
        *_acceptance(settings),
        *_hosting(settings),
        *_egress(settings),
        *_storage(settings),
        *_node(settings),
        *_webhook(settings),
        *_network(settings),
        *_names(settings),
        *_leader(settings),
        *_metrics(settings),
        *_audit(settings),
        *_listeners(settings),
    ]


def _complain(where: str, value: object, allowed: str) -> str:
    return f"{where} = {shown(value)}: {allowed}"


def _kubernetes(settings: Settings) -> Iterator[str]:
    url = settings.kubernetes.api_server_url
    if url and (not is_https(url) or api_url_problem(url)):
        what = api_url_problem(url) or "its port cannot be"
        allowed = f"must be an address such as https://203.0.113.7:6443, or empty; borrowers refuse this one: {what}"
        yield _complain("kubernetes.api-server-url", url, allowed)
    if not settings.kubernetes.namespace:
        yield _complain("kubernetes.namespace", "", "must name a namespace, such as liqo-system")


def _hosting(settings: Settings) -> Iterator[str]:
    for name in settings.hosting.namespace_names:
        if not _NAMESPACE_PATTERN.fullmatch(name):
            yield _complain("hosting.namespace-names", name, "must be the name of a namespace, such as shop or team-*")
    granted = settings.hosting
    for text in granted.egress_networks:
        if not is_network(text):
            yield _complain("hosting.egress-networks", text, "must be a network, such as 10.20.0.0/16")
    yield from _amounts_of_tenants(granted)
    for key, names, is_valid, allowed in (
        ("annotations", granted.annotations, _GRANTED_KEY.fullmatch, "must be a key, or a prefix such as example.com/"),
        ("labels", granted.labels, _GRANTED_KEY.fullmatch, "must be a key, or a prefix such as example.com/"),
        ("tolerations", granted.tolerations, is_qualified_name, "must be the key of a taint, such as example.com/gpu"),
        ("runtime-classes", granted.runtime_classes, is_dns_name, "must be the name of a RuntimeClass, such as gvisor"),
        ("service-accounts", granted.service_accounts, is_dns_name, "must be the name of a ServiceAccount"),
        ("volumes", granted.volumes, _VOLUME_KIND.fullmatch, "must be the field of a kind of volume, such as nfs"),
        ("ingress-hosts", granted.ingress_hosts, _is_host, _HOST),
        ("ingress-classes", granted.ingress_classes, is_dns_name, "must be the name of an IngressClass"),
        ("gateways", granted.gateways, is_gateway, "must be namespace/name of a Gateway, such as public/shared"),
        ("storage-classes", granted.storage_classes, is_dns_name, "must be the name of a StorageClass"),
        ("priority-class", [granted.priority_class] if granted.priority_class else [], is_dns_name, _PRIORITY),
    ):
        for name in names:
            if not is_valid(name):
                yield _complain(f"hosting.{key}", name, allowed)


def _is_host(text: str) -> bool:
    return is_dns_name(text.removeprefix(OF_TENANT))


def _amounts_of_tenants(granted: HostingSettings) -> Iterator[str]:
    for name, text in granted.default_requests.items():
        if name not in ("cpu", "memory", "ephemeral-storage") or not _is_amount(text):
            where = f"hosting.default-requests.{name}"
            yield _complain(where, text, "must be a quantity of cpu, memory or ephemeral-storage, such as 64Mi")
    for name in granted.uncounted:
        if not is_qualified_name(name):
            yield _complain(
                "hosting.uncounted", name, 'must be the name of an entry of a ResourceQuota: "count/secrets"'
            )
    for section, table in (("objects", granted.objects), ("tenant-objects", granted.tenant_objects)):
        for name, text in table.items():
            if not is_qualified_name(name) or not _is_amount(text):
                where = f"hosting.{section}.{name}"
                yield _complain(where, text, 'must be an entry of a ResourceQuota: "count/secrets" = "200"')
    for name, text in granted.tenant_records.items():
        if not _is_amount(text):
            yield _complain(f"hosting.tenant-records.{name}", text, "must be a quantity, such as 5000 or 256Mi")
    if granted.tenant_contents and not _is_amount(granted.tenant_contents):
        yield _complain("hosting.tenant-contents", granted.tenant_contents, "must be a quantity, such as 256Mi")
    if granted.tenant_writes and not (_is_amount(granted.tenant_writes) and parse_quantity(granted.tenant_writes) > 0):
        yield _complain("hosting.tenant-writes", granted.tenant_writes, "must be a quantity above 0, such as 64Mi")


def _egress(settings: Settings) -> Iterator[str]:
    rules = settings.egress.rules
    if len(rules) > MAX_RULES:
        yield f"egress.rules: may have {MAX_RULES} entries at most, and has {len(rules)}"
    for index, rule in enumerate(rules):
        where = f"egress.rules[{index}]"
        for name in rule.namespaces:
            if not _NAMESPACE_PATTERN.fullmatch(name):
                yield _complain(f"{where}.namespaces", name, "must be the name of a namespace, such as shop or team-*")
        if "" in rule.peers:
            yield _complain(f"{where}.peers", "", "must be a cluster ID, as `liqodctl discover -o wide` shows it")
        for key, text in (("labels", rule.labels), ("peer-labels", rule.peer_labels)):
            try:
                label_selector.parse(text)
            except ValueError as error:
                yield _complain(f"{where}.{key}", text, f"must be a label selector: {error}")


def _storage(settings: Settings) -> Iterator[str]:
    for path in settings.storage.node_paths:
        if not _NODE_PATH.fullmatch(path) or "/.." in path:
            yield _complain(
                "storage.node-paths", path, "must be a path with * for single parts, such as /opt/volumes/*, below a /"
            )


def _identity(settings: Settings) -> Iterator[str]:
    identity = settings.identity
    if identity.certificate and not identity.key:
        yield _complain("identity.key", "", "must name the private key that belongs to identity.certificate")
    if identity.key and not identity.certificate:
        yield _complain("identity.certificate", "", "must name the certificate that belongs to identity.key")


def _discovery(settings: Settings) -> Iterator[str]:
    for index, interface in enumerate(settings.discovery.interfaces):
        if not interface.strip() or len(interface) > 64:
            where = f"discovery.interfaces[{index}]"
            yield _complain(where, interface, "must be the name of a network interface or an address of one")
    for index, server in enumerate(settings.discovery.dns_servers):
        if not is_address(server, 53):
            yield _complain(
                f"discovery.dns-servers[{index}]", server, "must be host or host:port, such as 192.0.2.53:53"
            )
    seen: set[str] = set()
    for index, peer in enumerate(settings.discovery.peers):
        where = f"discovery.peers[{index}].address"
        if not is_address(peer.address):
            yield _complain(where, peer.address, "must be host:port, such as 203.0.113.7:5872 or [2001:db8::7]:5872")
        elif peer.address in seen:
            yield _complain(where, peer.address, "must be given once; an earlier entry has the same address")
        seen.add(peer.address)


def _peering(settings: Settings) -> Iterator[str]:
    for index, address in enumerate(settings.peering.advertise_addresses):
        if not is_ip(address):
            where = f"peering.advertise-addresses[{index}]"
            yield _complain(where, address, "must be an IP address without a port")


def _acceptance(settings: Settings) -> Iterator[str]:
    acceptance = settings.acceptance
    for section, table in (("quota", acceptance.quota), ("price-ceiling", acceptance.price_ceiling)):
        for name, text in table.items():
            if not _is_amount(text):
                where = f"acceptance.{section}.{name}"
                yield _complain(where, text, "must be a quantity of 0 or more, such as 4, 500m or 16Gi")
    try:
        label_selector.parse(acceptance.selector)
    except ValueError as error:
        yield _complain("acceptance.selector", acceptance.selector, f"must be a label selector: {error}")
    for text in acceptance.labels:
        if not _GRANTED_KEY.fullmatch(text):
            yield _complain("acceptance.labels", text, "must be a key, or a prefix such as example.com/")
    for index, text in enumerate(acceptance.hours):
        try:
            hours.parse(text)
        except ValueError:
            yield _complain(f"acceptance.hours[{index}]", text, "must be like 'Mon-Fri 08:00-18:00' (UTC)")


def _sharing(settings: Settings) -> Iterator[str]:
    sharing = settings.sharing
    for section, table in (("limits", sharing.limits), ("prices", sharing.prices)):
        for name, text in table.items():
            where = f"sharing.{section}.{name}"
            if not is_qualified_name(name):
                yield _complain(where, text, "must be named like a resource: cpu, memory, nvidia.com/gpu")
            if not _is_amount(text):
                yield _complain(where, text, "must be a quantity of 0 or more, such as 4, 500m or 16Gi")
    for text in sharing.load_balancer_classes:
        if not is_qualified_name(text):
            where = "sharing.load-balancer-classes"
            yield _complain(where, text, "must be named like internal or example.com/internal")
    for name, text in sharing.labels.items():
        where = f"sharing.labels.{name}"
        if not is_qualified_name(name):
            yield _complain(where, text, "must be named like a Kubernetes label, such as topology.kubernetes.io/region")
        if not is_label_value(text):
            yield _complain(
                where, text, "must be at most 63 letters, digits, '-', '_' and '.', as Kubernetes asks of labels"
            )


def _slices(settings: Settings) -> Iterator[str]:
    """Check the classes of slices, and what each of them has at most."""
    classes = settings.sharing.slice_classes
    if len(classes) > MAX_SLICE_CLASSES:
        yield f"sharing.slice-classes: may have {MAX_SLICE_CLASSES} entries at most, and has {len(classes)}"
    for name, most in classes.items():
        where = f"sharing.slice-classes.{name}"
        if not is_dns_label(name):
            yield _complain(where, name, "must be named like gpu: lower-case letters, digits and '-', at most 63")
        for resource, text in most.items():
            if not is_qualified_name(resource):
                yield _complain(f"{where}.{resource}", text, "must be named like cpu, memory or nvidia.com/gpu")
            if not _is_amount(text):
                yield _complain(f"{where}.{resource}", text, "must be a quantity of 0 or more, such as 4, 500m or 16Gi")


def _offer(settings: Settings) -> Iterator[str]:
    """Check what every borrower would refuse."""
    sharing = settings.sharing
    for section, count, most in (
        ("prices", len(sharing.prices), MAX_RESOURCES),
        ("labels", len(sharing.labels), MAX_LABELS),
        ("load-balancer-classes", len(sharing.load_balancer_classes), MAX_CLASSES),
    ):
        if count > most:
            yield f"sharing.{section}: may have {most} entries at most, and has {count}: borrowers refuse the offer"
    if not is_ttl(sharing.ttl):
        allowed = f"must be seconds from 1 to {MAX_TTL} (7 days): borrowers refuse the offer"
        yield _complain("sharing.ttl", sharing.ttl, allowed)
    for name, text in sharing.labels.items():
        if is_qualified_name(name) and is_reserved(name):
            where = f"sharing.labels.{name}"
            yield _complain(where, text, f"{reserved_message()}: borrowers refuse the offer")


def _node(settings: Settings) -> Iterator[str]:
    address = settings.kubelet.node_address
    if address and not is_ip(address):
        yield _complain("kubelet.node-address", address, "must be an IP address, or empty to find it out")
    if not _SIGNER.fullmatch(settings.kubelet.signer):
        yield _complain(
            "kubelet.signer", settings.kubelet.signer, "must be a signer's name, such as kubernetes.io/kubelet-serving"
        )


def _webhook(settings: Settings) -> Iterator[str]:
    url = settings.webhook.url
    if url and not is_https(url):
        yield _complain("webhook.url", url, "must be an address such as https://10.0.0.4:5873, or empty to find it out")
    service = settings.webhook.service
    known = _SERVICE.fullmatch(service)
    if service and (known is None or int(known[1] or 443) > 65535):
        yield _complain("webhook.service", service, "must be namespace/name or namespace/name:port, or empty")
    if service and url:
        yield _complain("webhook.service", service, "goes without webhook.url: the API server calls one of the two")


def _network(settings: Settings) -> Iterator[str]:
    network = settings.network
    if settings.daemon.role == "network" and network.mode == "none":
        yield _complain(
            "daemon.role", "network", 'needs mode = "wireguard" or "auto" under [network]; with none it has no work'
        )
    if settings.daemon.role == "control" and network.role == "node":
        yield _complain("daemon.role", "control", 'goes with role = "gateway" under [network]; nodes have no control')
    lists = {
        "pod-cidrs": network.pod_cidrs,
        "service-cidrs": network.service_cidrs,
        "pools": network.pools,
        "service-pools": network.service_pools,
        "accept": network.accept,
        "reserved": network.reserved,
        "external-cidr": [network.external_cidr],
        "external-cidr-6": [network.external_cidr_6] if network.external_cidr_6 else [],
    }
    for key, texts in lists.items():
        for text in texts:
            if not is_network(text):
                yield _complain(f"network.{key}", text, "must be a network, such as 10.70.0.0/20")
    for text in network.endpoints:
        if not is_address(text) or not is_ip(host_of(text)):
            yield _complain("network.endpoints", text, "must be address:port, such as 203.0.113.7:5871")


def _names(settings: Settings) -> Iterator[str]:
    if not is_dns_name(settings.cluster.domain) or len(settings.cluster.domain) > 128:
        yield _complain("cluster.domain", settings.cluster.domain, "must be a domain such as cluster.local")
    for text in settings.names.upstream:
        if not is_address(text, 53) or not is_ip(host_of(text)):
            yield _complain("names.upstream", text, "must be the address of a DNS server, such as 10.96.0.10")


def _leader(settings: Settings) -> Iterator[str]:
    """Check that a leader has time to renew its lease before it stops leading (``kube.leader``, two thirds)."""
    leader = settings.leader
    whole = f"of leader.lease-duration ({leader.lease_duration} seconds)"
    if leader.renew_interval > leader.lease_duration / 2:
        yield _complain("leader.renew-interval", leader.renew_interval, f"must be at most half {whole}")
    # The jitter of the election makes it a fifth longer.
    if leader.retry_interval * 1.2 >= leader.lease_duration * 2 / 3:
        yield _complain("leader.retry-interval", leader.retry_interval, f"must be less than five ninths {whole}")


def _metrics(settings: Settings) -> Iterator[str]:
    """Check that nobody reads the metrics over a network without TLS, or without saying who they are."""
    metrics = settings.metrics
    for key, name in (("certificate", metrics.certificate), ("key", metrics.key)):
        if metrics.tls == "files" and not name:
            yield _complain(f"metrics.{key}", "", f'must name a PEM file with the {key}, as tls = "files" says')
        if metrics.tls != "files" and name:
            yield _complain(f"metrics.{key}", name, 'goes with tls = "files" alone')
    if metrics.authentication == "token" and not metrics.token_file:
        allowed = 'must name the file with the token, as authentication = "token" says'
        yield _complain("metrics.token-file", "", allowed)
    if metrics.authentication != "token" and metrics.token_file:
        yield _complain("metrics.token-file", metrics.token_file, 'goes with authentication = "token" alone')
    if not metrics.listen or is_loopback(metrics.listen) or endpoint_problem(metrics.listen):
        return
    if metrics.tls == "none" or metrics.authentication == "none":
        allowed = (
            'is reached from elsewhere, where [metrics] needs tls ("own" or "files") and authentication '
            '("kubernetes" or "token"); tcp:5874:interface=127.0.0.1 needs neither'
        )
        yield _complain("metrics.listen", metrics.listen, allowed)
    elif metrics.tls == "own" and not settings.is_control:
        allowed = 'is kept by the roles "all" and "control" alone; here it is "files", with a certificate of yours'
        yield _complain("metrics.tls", "own", allowed)


def _audit(settings: Settings) -> Iterator[str]:
    if "\0" in settings.audit.file:
        yield _complain("audit.file", settings.audit.file, "must be the name of a file, or empty for the log")


def _listeners(settings: Settings) -> Iterator[str]:
    """Check the endpoint strings, and that no two listeners want one port of an address."""
    taken: dict[str, str] = {}
    for where, text, required in (
        ("peering.listen", settings.peering.listen, True),
        ("webhook.listen", settings.webhook.listen, settings.webhook.enabled),
        ("metrics.listen", settings.metrics.listen, False),
        ("kubelet.listen", settings.kubelet.listen, False),
        ("hosting.home-api", settings.hosting.home_api, False),
    ):
        if not text and not required:
            continue
        complaint = endpoint_problem(text)
        if complaint:
            yield _complain(where, text, complaint)
            continue
        for other, first in taken.items():
            if is_one_place(first, text):
                yield _complain(where, text, f"must be another port than {other}")
        taken[where] = text


def endpoint_problem(text: str) -> str:
    """Return what is wrong with the description of a listening endpoint, or an empty text."""
    if text.startswith("systemd:"):
        # Twisted would look into the environment at once; whether the socket was passed is found out when listening.
        good = "domain=" in text and ("name=" in text or "index=" in text)
        return "" if good else f"must be {ENDPOINT}"
    port = port_of(text)
    if is_tcp(text) and (port is None or port > 65535):
        return f"must have a port from 0 to 65535: {ENDPOINT}"
    no_reactor: Any = None
    try:
        serverFromString(no_reactor, text)
    except (ValueError, TypeError, KeyError, IndexError, OSError, RuntimeError):
        # Twisted's parser raises RuntimeError for a trailing backslash (PEP 479, StopIteration in a generator).
        return f"must be {ENDPOINT}"
    return ""


def is_address(text: str, default: int = 0) -> bool:
    """Return whether a text is an address with a port; without one where there is a ``default`` port."""
    try:
        split_address(text, default)
    except ValueError:
        return False
    return True


def is_network(text: str) -> bool:
    """Return whether a text is a network: an address without host bits, and a prefix length."""
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return "/" in text


def is_https(text: str) -> bool:
    """Return whether a text is an https address with a host and, where there is one, a port that can be."""
    try:
        parts = urlsplit(text)
        return parts.scheme == "https" and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def _is_amount(text: str) -> bool:
    try:
        return parse_quantity(text) >= 0
    except ValueError:
        return False
