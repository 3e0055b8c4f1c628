"""``explain``: why a pod, its workload, a namespace, node, peer, slice or copied object is so, or what a code means."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import attrs
import click

from liqod.cli.console import complete, errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.group import did_you_mean
from liqod.cli.console.options import Options, cluster_options, namespace_option, refuse_watch, watch_option
from liqod.cli.console.session import Output, Session, in_cluster
from liqod.cli.status import explain_other
from liqod.cli.status.cluster_records import advice_of, cluster_records
from liqod.cli.status.copies import copies_of, events_of, kind_named
from liqod.cli.status.explain_pod import COLUMNS, PodFacts, facts_for, findings
from liqod.cli.status.peers import find
from liqod.cli.status.reasons import command_codes, reasons
from liqod.cli.status.whoami import own_cluster
from liqod.kube.errors import NotFound
from liqod.kube.resources import DEPLOYMENTS, NAMESPACES, NODES, PODS, STATEFULSETS
from liqod.model.diagnosis.cluster import ClusterRecords, problems_of
from liqod.model.diagnosis.workloads import full_tenants
from liqod.model.ids import Key
from liqod.model.names import ENABLED_LABEL, REMOTE_CLUSTER_LABEL
from liqod.model.objects.meta import Object
from liqod.model.objects.node import Node
from liqod.model.records.views import ResourceSlice

KINDS: Final = {
    "pod": "pod",
    "po": "pod",
    "namespace": "namespace",
    "ns": "namespace",
    "node": "node",
    "peer": "peer",
    "service": "service",
    "svc": "service",
    "claim": "claim",
    "pvc": "claim",
    "persistentvolumeclaim": "claim",
    "ingress": "ingress",
    "ing": "ingress",
    "ingresses": "ingress",
    "secret": "secret",
    "configmap": "configmap",
    "cm": "configmap",
    "deployment": "deployment",
    "deploy": "deployment",
    "statefulset": "statefulset",
    "sts": "statefulset",
    "slice": "slice",
    "resourceslice": "slice",
    "tenant": "tenant",
}
WORKLOADS: Final = {"deployment": DEPLOYMENTS, "statefulset": STATEFULSETS}
CODE: Final = re.compile(r"LQ\d{4}|[A-Z][A-Za-z0-9]+")


@click.command()
@click.argument("words", metavar="[KIND] NAME|CODE", nargs=-1, required=True, shell_complete=complete.objects)
@namespace_option("pod, service or claim")
@watch_option
@cluster_options
def explain(options: Options, words: tuple[str, ...], namespace: str, watch: bool) -> None:
    """Explain why something is as it is, and what to do next.

    KIND is pod (the default), deployment, statefulset, namespace, node, peer, tenant, slice, service, ingress, claim,
    secret or configmap. CODE is a reason or an error code.

    \b
    Examples:
      liqodctl explain web-1 -n shop      is it offloaded, and why
      liqodctl explain peer milan         whose turn it is
      liqodctl explain service/web -n shop
      liqodctl explain deployment web -n shop --watch
      liqodctl explain TrustPending
    """
    refuse_watch(options, watch)
    kind, name = read(words)
    if kind != "code":
        in_cluster(
            options, lambda session: session.again(watch, partial(_explain, session, kind, Key(namespace, name)))
        )
    elif watch:
        raise click.UsageError("What a code means does not change: --watch goes with objects.")
    else:
        _explain_code(options, name)


def read(words: tuple[str, ...]) -> tuple[str, str]:
    """Return kind and name of what is to be explained. Raises CliError."""
    parts = [part for word in words for part in word.split("/", 1)]
    if len(parts) == 1:
        return ("code", parts[0]) if CODE.fullmatch(parts[0]) else ("pod", parts[0])
    known = list(dict.fromkeys(KINDS.values()))
    kind = _kind(parts[0])
    if len(parts) != 2 or kind is None:
        raise CliError(
            errors.REFUSED,
            f"{parts[0]} cannot be explained{did_you_mean(parts[0], known)}",
            f"the kinds are {', '.join(known)}; other pods are explained by their own names",
            errors.USAGE,
        )
    return kind, parts[1]


def _kind(word: str) -> str | None:
    """Return the kind that a word names, also in the plural."""
    lowered = word.lower()
    return KINDS.get(lowered) or KINDS.get(lowered.removesuffix("s"))


def _explain_code(options: Options, code: str) -> None:
    known = {**reasons(), **command_codes()}
    if code not in known:
        close = did_you_mean(code, list(known))
        raise CliError(errors.NO_SUCH_OBJECT, f"there is no code {code}{close}", "docs/operations.md lists them")
    rows = explain_other.explain_code(known[code])
    _print(Output(options), {"code": code}, rows)


async def _explain(session: Session, kind: str, key: Key) -> Callable[[], None]:
    """Return what shows why an object is as it is."""
    facts = await cluster_records(session)
    namespace, name = key
    more: dict[str, Any] = {kind: name}
    if kind == "pod":
        about = await _pod_facts(session, facts, key)
        rows = findings(about)
        problem = about.problems.get(str((about.pod.get("spec") or {}).get("nodeName") or ""))
        more = {"pod": str(key), "next": advice_of(problem) if problem is not None else ""}
    elif kind == "namespace":
        rows = explain_other.explain_namespace(await _namespace_facts(session, facts, name))
    elif kind == "peer":
        peer = find(name, facts.peers)
        rows = explain_other.explain_peer(facts, peer)
        problems = problems_of(facts, peer.metadata.name)
        more["next"] = next((advice for one in problems if (advice := advice_of(one))), "")
    elif kind == "node":
        rows = await _node_rows(session, facts, name)
    elif kind == "tenant":
        peer = find(name, facts.peers)
        labels = f"{REMOTE_CLUSTER_LABEL}={peer.metadata.name}"
        spaces = (await session.client.list(NAMESPACES, view=Object, labels=labels)).items
        rows = explain_other.explain_tenant(attrs.evolve(facts, tenants=full_tenants(spaces)), peer, spaces)
    elif kind == "slice":
        rows = explain_other.explain_slice(facts, _slice(facts, name))
    elif kind in WORKLOADS:
        rows = await _workload_rows(session, facts, kind, key)
        more = {kind: str(key)}
    else:
        of_kind = kind_named(kind)
        me = await own_cluster(session)
        copies = await copies_of(session, facts, of_kind, key, me.cluster_id)
        events = await events_of(session, key, of_kind.home.kind)
        rows = explain_other.explain_object(copies, events, await _namespace_facts(session, facts, namespace))
        more = {kind: str(key)}
    return partial(_print, session, more, rows)


def _print(output: Output, more: dict[str, Any], rows: list[dict[str, str]]) -> None:
    output.table(rows, COLUMNS, beneath=["why"])
    if more.get("next"):
        output.say(f"next: {more['next']}")
    output.publish({**more, "answer": rows[-1], "findings": rows[:-1]})


async def _node_rows(session: Session, facts: ClusterRecords, name: str) -> list[dict[str, str]]:
    try:
        node = await session.client.get(NODES, name, view=Node)
    except NotFound:
        known = ", ".join(sorted(one.metadata.name for one in facts.nodes)) or "none"
        raise CliError(errors.NO_SUCH_NODE, f"there is no node {name}", f"virtual nodes: {known}") from None
    record = next((one for one in facts.virtual_nodes if one.spec.node_name == name), None)
    return explain_other.explain_node(facts, node, record)


def _slice(facts: ClusterRecords, name: str) -> ResourceSlice:
    found = [one for one in facts.slices if name in (one.metadata.name, str(one.metadata.key))]
    if not found:
        raise CliError(errors.NO_SUCH_OBJECT, f"there is no slice {name}", "`liqodctl slice list` shows them")
    return found[0]


async def _workload_rows(session: Session, facts: ClusterRecords, kind: str, key: Key) -> list[dict[str, str]]:
    """Return the rows of a Deployment or StatefulSet: those of its pods in short."""
    resource = WORKLOADS[kind]
    try:
        body: dict[str, Any] = await session.client.get(resource, key.name, key.namespace)
    except NotFound:
        hint = f"`kubectl get {resource.plural} -n {key.namespace}` lists them"
        raise CliError(errors.NO_SUCH_OBJECT, f"there is no {kind} {key}", hint) from None
    spec = body.get("spec") or {}
    wanted = spec.get("replicas")
    labels = ",".join(
        f"{name}={value}" for name, value in ((spec.get("selector") or {}).get("matchLabels") or {}).items()
    )
    pods: list[dict[str, Any]] = (await session.client.list(PODS, key.namespace, labels=labels)).items if labels else []
    space = await _namespace_facts(session, facts, key.namespace)
    every = [facts_for(facts, pod, enabled=space.enabled) for pod in pods]
    return explain_other.explain_workload(every, 1 if wanted is None else int(wanted))


async def _pod_facts(session: Session, facts: ClusterRecords, key: Key) -> PodFacts:
    try:
        pod = await session.client.get(PODS, key.name, key.namespace)
    except NotFound:
        raise CliError(
            errors.NO_SUCH_POD, f"there is no pod {key}", f"`kubectl get pods -n {key.namespace}` lists them"
        ) from None
    return await _facts(session, facts, key.namespace, pod)


async def _namespace_facts(session: Session, facts: ClusterRecords, name: str) -> PodFacts:
    return await _facts(session, facts, name, {"metadata": {"namespace": name, "name": ""}, "spec": {}})


async def _facts(session: Session, facts: ClusterRecords, name: str, pod: dict[str, Any]) -> PodFacts:
    try:
        namespace = await session.client.get(NAMESPACES, name, view=Object)
    except NotFound:
        raise CliError(errors.NO_SUCH_NAMESPACE, f"there is no namespace {name}", "kubectl get namespaces") from None
    return facts_for(facts, pod, enabled=namespace.metadata.labels.get(ENABLED_LABEL) == "true")
