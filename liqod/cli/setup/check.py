"""``check``: checks everything that liqod depends on, and prints a remedy for each failed check."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import attrs
import click
import msgspec
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.protocol import Factory, Protocol

from liqod.agent.account import rights
from liqod.agent.account.names import liqodctl_as
from liqod.agent.host.address import own_address
from liqod.agent.host.clock_check import server_time
from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.findings import Finding, bad, failed, good, warning
from liqod.cli.console.options import Options, cluster_options, refuse_watch, watch_option
from liqod.cli.console.run import run
from liqod.cli.console.session import Output, Session, client_config
from liqod.cli.network.plan import host_findings
from liqod.cli.setup.definitions import definitions
from liqod.cli.setup.host.wanted import KUBECONFIGS
from liqod.cli.setup.surroundings.foreign import foreign_findings
from liqod.cli.setup.surroundings.in_cluster_names import in_cluster_names
from liqod.cli.setup.surroundings.read import open_to_all, surroundings
from liqod.cli.status.cluster_records import as_finding, is_here, leader
from liqod.cli.status.first_screen import FirstScreen, first_screen
from liqod.cli.status.own_facts import fact_findings, own_facts
from liqod.cli.status.whoami import own_cluster
from liqod.config.endpoints import port_of
from liqod.config.schema import Settings
from liqod.flow.clocks import Reactor
from liqod.hosting.networkpolicies.enforcement import without_effect
from liqod.kube.client import Client
from liqod.kube.errors import KubeError, NotFound
from liqod.kube.resources import MUTATINGWEBHOOKS, NAMESPACES, STORAGECLASSES
from liqod.model.diagnosis import examination
from liqod.model.diagnosis.access import WebhookFacts
from liqod.model.diagnosis.cluster import ClusterRecords
from liqod.model.diagnosis.examination import Evidence
from liqod.model.diagnosis.installation import ClockFacts
from liqod.model.diagnosis.kubernetes_release import KUBERNETES, gaps
from liqod.model.diagnosis.problem import DAEMON, PROCESSES
from liqod.model.host_port import join_address
from liqod.model.objects.meta import Object
from liqod.model.objects.storage_class import StorageClass
from liqod.model.records.facts import API_SERVER, values_of
from liqod.model.records.offer_rules import SHOWN, granted_labels
from liqod.webhook.configuration import NAME as WEBHOOK

Part = Callable[[Session], AsyncIterator[Finding]]

MINIMUM = (1, 30)
"""The oldest release of Kubernetes that has all that the daemon needs (ValidatingAdmissionPolicy v1)."""
RIGHTS = "Rights"
"""The group of what the user, or the daemon's account, may not do."""
WEBHOOKS = "Webhook"
CONNECT_TIMEOUT = 3.0
"""Seconds that a TCP connect to a port may take."""


class _Version(msgspec.Struct):
    major: str = ""
    minor: str = ""


@click.command()
@click.option("--pre", is_flag=True, help="Only the prerequisites of an installation.")
@watch_option
@cluster_options
def check(options: Options, pre: bool, watch: bool) -> None:
    """Check configuration, API server, rights, CRDs, clock, ports, webhook and daemon.

    \b
    Examples:
      liqodctl check --pre                before `liqodctl install`
      liqodctl check -o json
    """
    refuse_watch(options, watch)
    findings: list[Finding] = []
    try:
        # With --pre the configuration may name the kubeconfig that `install` will write.
        settings = options.settings(look_at_files=not pre)
        if not pre:
            options, findings = as_daemon(options, settings, os.environ)
        config = client_config(options, settings, as_daemon=not pre)
    except CliError as error:
        findings.append(bad("Configuration", f"{error.code}: {error.message}", error.hint, error.code))
        Output(options).report(findings)
    else:
        before = [*findings, good("Configuration", "configuration and kubeconfig are readable")]

        async def work(reactor: Reactor) -> None:
            client = Client(config, reactor, user_agent="liqodctl", timeout=10.0)
            try:
                session = Session(options, reactor=reactor, client=client, settings=settings)

                async def read() -> Callable[[], None]:
                    findings[:] = [*before, *[finding async for finding in examine(session, pre=pre)]]
                    return partial(session.report, findings)

                await session.again(watch, read)
            finally:
                await client.close()

        run(work)
    if failed(findings):
        raise CliError(errors.CHECK, "some checks failed", "follow the hints above")


def as_daemon(options: Options, settings: Settings, environ: Mapping[str, str]) -> tuple[Options, list[Finding]]:
    """Return options with the kubeconfig of the daemon's unit, or a warning where this user cannot read it.

    They stay as they are where a kubeconfig is named by them or the settings, and in a pod.
    """
    named = options.kubeconfig or options.context or settings.kubernetes.kubeconfig
    if named or environ.get("KUBERNETES_SERVICE_HOST"):
        return options, []
    file = KUBECONFIGS[settings.daemon.role]
    # The accounts of the other roles may not look at what is checked besides their rights.
    if settings.daemon.role in ("all", "control") and os.access(file, os.R_OK):
        return attrs.evolve(options, kubeconfig=file), []
    hint = f"the daemon's own is {file}; --kubeconfig names the one to check with"
    return options, [warning("Configuration", "checked with your kubeconfig, not the daemon's", hint)]


async def examine(session: Session, *, pre: bool) -> AsyncIterator[Finding]:
    """Yield the findings in the order of dependency."""
    server = session.client.config.server
    try:
        await session.client.raw("GET", "/version")
    except KubeError as error:
        shown = errors.from_kube(error, server)
        yield bad("API server", f"{shown.code}: {shown.message}", shown.hint, shown.code)
        return
    yield good("API server", f"{server} answers")
    record = None if pre else await own_facts(session)
    advertised = next(iter(values_of(record, API_SERVER)), session.settings.kubernetes.api_server_url or server)
    # With the relay, borrowers send requests through the peer session and need no address.
    if session.settings.peering.api == "direct" and urlsplit(advertised).hostname in ("127.0.0.1", "localhost", "::1"):
        yield warning(
            "API server",
            f"{advertised} would be advertised to borrowers, who cannot reach it",
            "set kubernetes.api-server-url to an address that other clusters reach, or peering.api to auto",
        )
    offered = session.settings.sharing.labels
    if unseen := sorted(offered.keys() - granted_labels(offered, SHOWN).keys()):
        yield warning(
            "Offered labels",
            f"borrowers show {', '.join(unseen)} on their virtual nodes only if their configuration names them",
            "have them name these keys in labels under [acceptance], or offer topology.kubernetes.io/region",
        )
    for finding in fact_findings(record, advertised, session.settings.cluster.domain):
        yield finding
    for finding in await host_findings(session, pre=pre):
        yield finding
    installed = (open_to_all, _crds, _daemon, _ports, _lending)
    after: tuple[Part, ...] = (surroundings, foreign_findings) if pre else installed
    for part in (_version, in_cluster_names, _rights, _clock, *after):
        try:
            async for finding in part(session):
                yield finding
        except KubeError as error:
            shown = errors.from_kube(error, server)
            group = part.__name__.strip("_").capitalize()
            yield bad(group, f"{shown.code}: {shown.message}", shown.hint, shown.code)
    if pre:
        for finding in _free_ports(session.settings):
            yield finding


async def _version(session: Session) -> AsyncIterator[Finding]:
    version = msgspec.json.decode(await session.client.raw("GET", "/version"), type=_Version)
    shown = f"Kubernetes {version.major}.{version.minor}"
    major, minor = (int("".join(filter(str.isdigit, part)) or 0) for part in (version.major, version.minor))
    if (major, minor) < MINIMUM:
        yield bad("API server", f"{shown} is too old", "liqod needs Kubernetes 1.30 or newer")
    else:
        yield good("API server", shown)
        for gap in gaps((major, minor)):
            yield warning(KUBERNETES, f"{shown} {gap.text}", gap.advice, "OlderKubernetes")


async def _rights(session: Session) -> AsyncIterator[Finding]:
    try:
        missing = await rights.missing(session.client, session.settings)
    except KubeError as error:
        yield warning(
            RIGHTS,
            f"access reviews failed: {error}",
            "make sure that the daemon's user has the rights of `install --print`",
        )
        return
    install = f"{liqodctl_as(session.settings.daemon.role)} install"
    for right in missing:
        yield bad(RIGHTS, f"may not {right}", f"run `{install}` as an administrator of the cluster", "RightsMissing")
    if not missing:
        yield good(RIGHTS, "this user has all rights that the daemon needs")


async def _clock(session: Session) -> AsyncIterator[Finding]:
    now = await server_time(session.client)
    clock = ClockFacts(None if now is None else (datetime.now(UTC) - now).total_seconds())
    for finding in _shown(Evidence(clock=clock)):
        yield finding


def _shown(evidence: Evidence) -> list[Finding]:
    """Return what the diagnosis says of this evidence."""
    found = examination.examine(evidence)
    return [as_finding(one, one.topic) for one in found.problems] + [good(one.topic, one.text) for one in found.passed]


def _listeners(settings: Settings) -> list[tuple[str, int]]:
    wanted = [
        ("peering.listen", settings.peering.listen),
        ("kubelet.listen", settings.kubelet.listen),
        ("metrics.listen", settings.metrics.listen),
        ("hosting.home-api", settings.hosting.home_api),
    ]
    if settings.webhook.enabled:
        wanted.append(("webhook.listen", settings.webhook.listen))
    if settings.names.enabled and settings.names.home_port:
        wanted.append(("names.home-port", f"tcp:{settings.names.home_port}"))
    return [(name, port) for name, text in wanted if (port := port_of(text))]


def _free_ports(settings: Settings) -> list[Finding]:
    findings = []
    for name, port in _listeners(settings):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind(("", port))
            except OSError as error:
                why = (error.strerror or str(error)).lower()
                text = f"port {port} ({name}) is not available: {why}"
                findings.append(bad("Ports", text, f"free it, or change {name}", "PortTaken"))
            else:
                findings.append(good("Ports", f"port {port} ({name}) is free"))
    return findings


async def _crds(session: Session) -> AsyncIterator[Finding]:
    namespace = session.settings.kubernetes.namespace
    for finding in _shown(Evidence(definitions=await definitions(session))):
        yield finding
    try:
        await session.client.get(NAMESPACES, namespace, view=Object)
    except NotFound:
        yield bad("CRDs", f"the namespace {namespace} is missing", "run `liqodctl install`")


async def _daemon(session: Session) -> AsyncIterator[Finding]:
    try:
        screen = await first_screen(session, counts=False)
    except NotFound:
        # Without definitions there are no records; who leads is said by a Lease.
        screen = FirstScreen(ClusterRecords(leader=await leader(session)))
    for finding in of_processes(screen):
        yield finding
    if screen.facts.leader is not None:
        me = await own_cluster(session)
        if me.fingerprint:
            yield good(DAEMON, f"the cluster's key is {me.words}")
        elif me.problem:
            yield warning(DAEMON, me.problem, me.missing_key.hint)
        else:
            yield bad(DAEMON, "the cluster has no key", "the daemon creates it at its first start; see its log")
    async for finding in _webhook(session, screen.facts.webhook):
        yield finding


def of_processes(screen: FirstScreen) -> list[Finding]:
    """Return what the diagnosis says of the daemon's processes, of their accounts, and of who reaches them. Pure."""
    topics = (DAEMON, PROCESSES)
    unread = [one for one in screen.unread if one.topic in topics]
    found = examination.examine(Evidence(records=screen.facts, unread=unread))
    # There is one daemon that leads, and there may be several processes.
    groups = {DAEMON: DAEMON, PROCESSES: ""}
    shown = [as_finding(one, groups[one.topic]) for one in found.problems if one.topic in topics]
    return shown + [good(one.topic, one.text) for one in found.passed if one.topic in topics]


async def _ports(session: Session) -> AsyncIterator[Finding]:
    leads = await leader(session)
    here = leads is not None and is_here(leads)
    port = next((port for name, port in _listeners(session.settings) if name == "peering.listen"), 0)
    if not here or not port:
        return
    host = own_address(session.settings.kubelet.node_address, session.client.config.server)
    address = join_address(host, port)
    problem = await _connect_error(session.reactor, host, port)
    if problem:
        hint = "peers must reach it: check the firewall"
        yield bad("Ports", f"{address} does not accept connections: {problem}", hint, "NotListening")
    else:
        yield good("Ports", f"{address} accepts connections; peers must reach it, too")


async def _webhook(session: Session, known: WebhookFacts | None) -> AsyncIterator[Finding]:
    """Yield what is known of the webhook besides what the diagnosis said of it."""
    if not session.settings.webhook.enabled:
        yield good(WEBHOOKS, "is disabled: pods need the toleration in their manifests")
    elif known is None:
        async for finding in _configured_webhook(session):
            yield finding
    elif known.configured and known.answered is not False:
        yield good(WEBHOOKS, f"the API server calls {known.where}{', which answers' if known.answered else ''}")


async def _configured_webhook(session: Session) -> AsyncIterator[Finding]:
    """Yield what is configured, where no daemon says what should be."""
    try:
        body: dict[str, Any] = await session.client.get(MUTATINGWEBHOOKS, WEBHOOK)
    except NotFound:
        body = {}
    clients = [hook.get("clientConfig", {}) for hook in body.get("webhooks") or []]
    urls = [client["url"] for client in clients if client.get("url")]
    for service in [client["service"] for client in clients if client.get("service")]:
        # Only the API server, and pods, reach it.
        yield good(WEBHOOKS, f"is called by the Service {service.get('namespace')}/{service.get('name')}")
    if not clients:
        hint = "the leading daemon configures it; see its log"
        yield bad(WEBHOOKS, "is not configured", hint, "WebhookNotConfigured")
    for url in dict.fromkeys(urls):
        parts = urlsplit(url)
        problem = await _connect_error(session.reactor, parts.hostname or "", parts.port or 443)
        if problem:
            text = f"{url} is not reachable from this host: {problem}"
            yield warning(WEBHOOKS, text, "the API server must reach it", "WebhookUnreachable")
        else:
            yield good(WEBHOOKS, f"{url} accepts connections")


async def _lending(session: Session) -> AsyncIterator[Finding]:
    settings = session.settings
    if not settings.sharing.percentage:
        return
    if missing := [name for name in ("cpu", "memory") if name not in settings.sharing.limits]:
        yield warning(
            "Lending",
            f"nothing caps the {' and '.join(missing)} of one borrower: its offer grows with what it uses",
            'set limits under [sharing], such as {cpu = "8", memory = "16Gi"}, or spec.sharing of each peer',
        )
    if why := without_effect(settings.hosting.egress, await own_facts(session)):
        yield warning(
            "Lending",
            f"{why}: pods of borrowers may reach this cluster's own networks",
            "have a network plugin that enforces NetworkPolicies (docs/tenants.md names those that are known), or lend "
            "to nobody who may not reach what the nodes reach",
            "EgressNotBounded",
        )
    if settings.hosting.storage_classes:
        return
    classes = (await session.client.list(STORAGECLASSES, view=StorageClass)).items
    if kept := sorted(one.metadata.name for one in classes if one.reclaim_policy == "Retain"):
        yield warning(
            "Lending",
            f"volumes of the storage class {', '.join(kept)} stay after their claims, and no quota counts them",
            "name the classes that are lent in storage-classes under [hosting]; a borrower that knows the name of "
            "another one gets claims of it",
        )


async def _connect_error(reactor: Reactor, host: str, port: int) -> str:
    """Return why a TCP connection fails, or ""."""
    try:
        endpoint = HostnameEndpoint(reactor, host, port, timeout=CONNECT_TIMEOUT)
        protocol = await endpoint.connect(Factory.forProtocol(Protocol))
    except Exception as error:
        return str(error) or type(error).__name__
    if isinstance(protocol, Protocol) and protocol.transport is not None:
        protocol.transport.loseConnection()
    return ""
