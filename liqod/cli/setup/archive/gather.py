"""``gather``: an archive for a problem report, by allow lists, without secrets, of bounded size."""

from __future__ import annotations

import io
import json
import os
import platform
import tarfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import attrs
import click
import msgspec

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options, cluster_options
from liqod.cli.console.render import join_reason
from liqod.cli.console.session import Session, in_cluster
from liqod.cli.main import own_version
from liqod.cli.setup.archive import daemon_pages
from liqod.cli.setup.archive.redact import FIELDS, allowed, left_out, scrubbed
from liqod.cli.status.first_screen import FirstScreen, first_screen
from liqod.cli.status.peers import status_rows
from liqod.fabric.agent.kernel.host import HostKernel, Kernel, KernelError
from liqod.kube.errors import KubeError
from liqod.kube.resources import (
    ADVERTISEMENTS,
    CLUSTERFACTS,
    EVENTS,
    FOREIGNCLUSTERS,
    LEASES,
    NAMESPACEOFFLOADINGS,
    NATTINGTABLES,
    NETWORKCONFIGS,
    NETWORKGATEWAYS,
    NODES,
    PODS,
    RESOURCESLICES,
    SEARCHDOMAINS,
    SHADOWENDPOINTSLICES,
    SHADOWNETWORKPOLICYSETS,
    SHADOWPODS,
    TUNNELENDPOINTS,
    VIRTUALNODES,
    Resource,
)
from liqod.model.diagnosis.cluster import ClusterRecords, diagnose
from liqod.model.diagnosis.installation import unread_problems
from liqod.model.names import TYPE_LABEL, VIRTUAL_NODE_TYPE

MOST_OBJECTS: Final = 2000
"""Objects of one kind that are kept."""
MOST_BYTES: Final = 4 << 20
"""Bytes of one file before compression; with some dozens of files the archive stays far below 20 MB."""
KINDS: Final[Sequence[tuple[Resource, str]]] = (
    (FOREIGNCLUSTERS, ""),
    (ADVERTISEMENTS, ""),
    (VIRTUALNODES, ""),
    (RESOURCESLICES, ""),
    (NATTINGTABLES, ""),
    (NAMESPACEOFFLOADINGS, ""),
    (NETWORKCONFIGS, ""),
    (TUNNELENDPOINTS, ""),
    (NETWORKGATEWAYS, ""),
    (CLUSTERFACTS, ""),
    (SEARCHDOMAINS, ""),
    (SHADOWPODS, ""),
    (SHADOWENDPOINTSLICES, ""),
    (SHADOWNETWORKPOLICYSETS, ""),
    (NODES, f"{TYPE_LABEL}={VIRTUAL_NODE_TYPE}"),
    (LEASES, ""),
    (EVENTS, ""),
)
"""What is gathered from the cluster, with a label selector; leases are those of our namespace."""
NEVER: Final = (
    "Secrets, ConfigMaps and every other kind that is not in the archive",
    "labels and annotations of all objects",
    "specifications of pods: images, commands, environment, volumes",
    "addresses of peers, keys and fingerprints",
    "the kubeconfig, the files that the configuration names, and values of settings that name files or keys",
)


@attrs.define
class Archive:
    """A tar archive in memory; ``omitted`` is what was left out, and why."""

    name: str
    buffer: io.BytesIO = attrs.field(factory=io.BytesIO)
    files: list[str] = attrs.field(factory=list)
    omitted: set[str] = attrs.field(factory=set)
    _tar: Any = None

    def add(self, path: str, text: str, *, newest: bool = False) -> None:
        """Add a text file; what is beyond the limit is cut, and noted: the end, or with ``newest`` the first lines."""
        if self._tar is None:
            self._tar = tarfile.open(fileobj=self.buffer, mode="w:gz")  # noqa: SIM115
        data = text.encode("utf-8", "replace")
        kept = tail(data, MOST_BYTES) if newest else data[:MOST_BYTES]
        if len(kept) < len(data):
            self.omitted.add(f"{path}: the {'first' if newest else 'last'} {len(data) - len(kept)} bytes")
        data = kept
        info = tarfile.TarInfo(f"{self.name}/{path}")
        info.size, info.mode, info.mtime = len(data), 0o600, int(datetime.now(UTC).timestamp())
        self._tar.addfile(info, io.BytesIO(data))
        self.files.append(path)

    def add_newest(self, path: str, text: str) -> None:
        """Add a text file, of which the newest lines are kept where it is beyond the limit."""
        self.add(path, text, newest=True)

    def close(self) -> bytes:
        """Return the whole archive."""
        self._tar.close()
        return self.buffer.getvalue()


@click.command()
@click.option("--file", "path", default="", metavar="FILE", help="The archive [liqod-gather-DATE.tar.gz].")
@cluster_options
def gather(options: Options, path: str) -> None:
    """Write an archive for a problem report: records, events, state of this host, the daemons' logs and metrics.

    What is gathered is on an allow list of fields, and keys, tokens and passwords are removed from texts. Secrets,
    pods' specifications, labels and annotations never are in it; LEFT-OUT.txt in the archive lists what was left out.

    \b
    Example:
      liqodctl gather --file /tmp/report.tar.gz
    """

    async def work(session: Session) -> None:
        now = datetime.now(UTC)
        archive = Archive(f"liqod-gather-{now:%Y%m%d-%H%M%S}")
        target = Path(path or f"{archive.name}.tar.gz")
        screen = await first_screen(session)
        facts = screen.facts
        archive.add("SUMMARY.md", summary(screen, now))
        for resource, labels in KINDS:
            await _objects(session, archive, resource, labels)
        await _pods(session, archive, facts)
        ours = await daemon_pages.pods_of_ours(session, archive.omitted.add)
        archive.add("cluster/liqod-pods.json", as_list(daemon_pages.states_of(ours), MOST_BYTES)[0])
        await daemon_pages.of_pods(session, ours, archive.add_newest, archive.omitted.add)
        await daemon_pages.of_this_host(session, archive.add_newest, archive.omitted.add)
        archive.add("settings.json", settings_text(msgspec.to_builtins(session.settings)))
        kernel = HostKernel(session.reactor)
        for name, command in HOST:
            text = await command_output(kernel, archive, name, command)
            archive.add(f"host/{name}.txt", text, newest=name == "log")
        archive.add("LEFT-OUT.txt", "\n".join([*NEVER, "", *sorted(archive.omitted)]) + "\n")
        write(target, archive.close())
        size = target.stat().st_size  # noqa: ASYNC240
        session.say(f"{target}: {len(archive.files)} files, {size // 1024 + 1} KiB; look at it before you send it")
        session.publish(
            {"file": str(target), "bytes": size, "files": archive.files, "leftOut": sorted(archive.omitted)}
        )

    in_cluster(options, work)


HOST: Final = (
    ("log", ("journalctl", "-u", "liqod*", "--no-pager", "-n", "5000", "-o", "short-iso")),
    ("service", ("systemctl", "status", "liqod*", "--no-pager", "-n", "0")),
    ("links", ("ip", "-details", "link", "show", "type", "wireguard")),
    ("links-of-programs", ("ip", "-details", "link", "show", "type", "tun")),
    ("rules", ("ip", "rule", "show")),
    ("rules6", ("ip", "-6", "rule", "show")),
    ("routes", ("ip", "route", "show", "table", "18952")),
    ("routes6", ("ip", "-6", "route", "show", "table", "18952")),
    ("nftables", ("nft", "--stateless", "list", "table", "inet", "liqod")),
    ("kernel", ("uname", "-srm")),
)
"""Commands whose output is kept, scrubbed; ``wg`` is not among them, because its output has keys."""


def summary(screen: FirstScreen, now: datetime) -> str:
    """Return the first page of the archive (Markdown). Pure but for the version of this program."""
    facts = screen.facts
    leads = facts.leader
    lines = [
        "# Summary",
        "",
        f"* gathered {now:%Y-%m-%d %H:%M:%S} UTC by liqodctl {own_version()}, Python {platform.python_version()}",
        f"* daemon: {f'{leads.holder}, renewed {leads.age:.0f} s ago' if leads is not None else 'none'}",
        f"* {len(facts.peers)} peers, {len(facts.virtual_nodes)} virtual nodes, {len(facts.tunnels)} tunnels",
        "",
        "## What is wrong",
        "",
    ]
    found = [*diagnose(facts), *unread_problems(screen.unread)]
    lines += [f"* {one.severity}: {one.kind} {one.name}: {join_reason(one.code, one.cause)}" for one in found]
    lines += [] if found else ["* nothing"]
    lines += ["", "## Peers", ""]
    for row in status_rows(facts, {}):
        lines.append(
            f"* {row['name']}: {row['state']}; borrowing {row['borrowing'] or '-'}; lending {row['lending'] or '-'}"
        )
    return scrubbed("\n".join(lines) + "\n")


async def _objects(session: Session, archive: Archive, resource: Resource, labels: str) -> None:
    namespace = session.settings.kubernetes.namespace if resource == LEASES else ""
    try:
        found: list[dict[str, Any]] = (await session.client.list(resource, namespace, labels=labels)).items
    except KubeError as error:
        archive.omitted.add(f"{resource}: {scrubbed(str(error))[:200]}")
        return
    if resource == EVENTS:
        found = [one for one in found if (one.get("reportingComponent") or "").startswith("liqo")]
        found.sort(key=_moment, reverse=True)
    _add(archive, resource, found)


async def _pods(session: Session, archive: Archive, facts: ClusterRecords) -> None:
    found: list[dict[str, Any]] = []
    for node in facts.nodes:
        try:
            found += (await session.client.list(PODS, fields=f"spec.nodeName={node.metadata.name}")).items
        except KubeError as error:
            archive.omitted.add(f"pods: {scrubbed(str(error))[:200]}")
    _add(archive, PODS, found)


def _add(archive: Archive, resource: Resource, found: list[dict[str, Any]]) -> None:
    fields = FIELDS[resource.kind]
    kept = []
    for body in found[:MOST_OBJECTS]:
        kept.append(allowed(body, fields))
        archive.omitted |= {f"{resource}: {path}" for path in left_out(body, fields)}
    text, count = as_list(kept, MOST_BYTES)
    if count < len(found):
        archive.omitted.add(f"{resource}: {len(found) - count} of {len(found)} objects")
    archive.add(f"cluster/{resource}.json", text)


def as_list(items: Sequence[Mapping[str, Any]], most: int) -> tuple[str, int]:
    """Return as many items as fit into so many bytes, as a whole JSON document, and their number. Pure."""
    shown: list[str] = []
    room = most - len("[\n\n]\n")
    for one in items:
        text = json.dumps(one, indent=1, ensure_ascii=False)
        room -= len(text.encode("utf-8", "replace")) + len(",\n")
        if room < 0:
            break
        shown.append(text)
    return "[\n" + ",\n".join(shown) + "\n]\n", len(shown)


def tail(data: bytes, most: int) -> bytes:
    """Return the last lines of a text that fit into so many bytes, whole ones where one of them does. Pure."""
    if len(data) <= most:
        return data
    kept = data[-most:]
    _, newline, whole = kept.partition(b"\n")
    # Where the cut is between two lines the first of what is kept is whole.
    return kept if data[-most - 1 : -most] == b"\n" or not newline or not whole else whole


def _moment(event: Mapping[str, Any]) -> str:
    """Return when an event was seen last, RFC 3339: of too many the newest are kept."""
    return str(event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp") or "")


def settings_text(settings: dict[str, Any]) -> str:
    """Return the settings that are numbers and switches; texts may name files, keys and addresses. Pure."""
    kept = {
        section: {name: value for name, value in values.items() if isinstance(value, bool | int | float)}
        for section, values in settings.items()
        if isinstance(values, dict)
    }
    return json.dumps(kept, indent=1) + "\n"


async def command_output(kernel: Kernel, archive: Archive, name: str, command: Sequence[str]) -> str:
    """Return what a command of the host prints, scrubbed; one that cannot be run, or does not end, is noted."""
    try:
        done = await kernel.run(command)
    except KernelError as error:
        archive.omitted.add(f"host/{name}: {error}")
        return ""
    return scrubbed(done.out + done.err)


def write(target: Path, data: bytes) -> None:
    """Write the archive for its owner alone; an existing file is not replaced. Raises CliError."""
    try:
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise CliError(errors.FILE, f"{target} cannot be written: {why}", "--file names another one") from None
