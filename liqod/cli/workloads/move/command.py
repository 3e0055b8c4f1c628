"""``move volume``: takes the steps of a move until it rests, is refused, or has ended."""

from __future__ import annotations

import secrets
from typing import Any, Final

import attrs
import click
import msgspec
from twisted.internet.task import deferLater

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.group import Group
from liqod.cli.console.options import Options, cluster_options, group_options, namespace_option, timeout_option
from liqod.cli.console.progress import Progress
from liqod.cli.console.session import Session, in_cluster
from liqod.cli.status.cluster_records import cluster_records
from liqod.cli.status.peers import find
from liqod.cli.workloads.move import objects
from liqod.cli.workloads.move.observe import Look, observe
from liqod.cli.workloads.move.plan import Begin, End, Make, Note, Refused, Remove, Rest, Wait, plan
from liqod.cli.workloads.move.seen import HOME, MoveRecord, Part, Phase, Wish
from liqod.kube.errors import AlreadyExists, Conflict
from liqod.kube.resources import CONFIGMAPS, JOBS, PERSISTENTVOLUMECLAIMS, PODS, SECRETS, SERVICES, Resource
from liqod.model.diagnosis.cluster import ClusterRecords
from liqod.model.ids import Key

LOOK: Final = 2.0
"""Seconds from one look to the next while something is waited for."""
SOON: Final = 0.2
"""Seconds after a step that removed something: what is being removed is seen again for a moment."""
_RESOURCES: Final[dict[Part, Resource]] = {
    "secret": SECRETS,
    "service": SERVICES,
    "server": PODS,
    "backup": JOBS,
    "restore": JOBS,
    "refill": JOBS,
    "copy": PERSISTENTVOLUMECLAIMS,
    "claim": PERSISTENTVOLUMECLAIMS,
}
_DONE: Final = {
    "copied": "the copy is made",
    "switching": "the original is given up",
    "switched": "the claim is filled from the copy",
    "copying": "",
}
_CODES: Final = {
    "InUse": errors.IN_USE,
    "AlreadyMoving": errors.IN_USE,
    "ClaimTaken": errors.IN_USE,
    "TooLate": errors.IN_USE,
    "ClaimGone": errors.NO_SUCH_OBJECT,
    "NotMoving": errors.NO_SUCH_OBJECT,
}
"""The codes of refusals; of all others it is that of a refused request."""


@click.group(cls=Group, aliases={"pvc": "volume", "claim": "volume"})
@group_options
def move() -> None:
    """Move the data of a claim to another cluster.

    \b
    Example:
      liqodctl move volume data -n shop --to milan
    """


@move.command("volume")
@click.argument("claim", metavar="CLAIM")
@click.option("--to", "target", default="", metavar="PEER|home", help="Where the data is to be.")
@click.option("--confirm", is_flag=True, help="Give up the original, and have the claim at the target.")
@click.option("--cancel", is_flag=True, help="Remove the copy; the original is untouched.")
@namespace_option("claim")
@timeout_option(3600.0, "Timeout of this run; another one goes on.")
@cluster_options
def move_volume(
    options: Options, *, claim: str, target: str, confirm: bool, cancel: bool, namespace: str, timeout: float
) -> None:
    """Move the data of a claim to another cluster, or home.

    The data is copied over the network between the clusters, while no pod has
    the claim. The original is kept until --confirm: then a claim of the same
    name is made at the target, and filled from the copy. Whatever interrupts
    it, the same command goes on.

    \b
    Examples:
      liqodctl move volume data -n shop --to milan
      liqodctl move volume data -n shop --confirm
      liqodctl move volume data -n shop --cancel
    """
    if confirm and cancel:
        raise CliError(errors.CONFIGURATION, "--confirm and --cancel exclude each other", status=errors.USAGE)
    if not (target or confirm or cancel):
        raise CliError(
            errors.CONFIGURATION, "where to?", "--to PEER, or --to home; --confirm or --cancel", errors.USAGE
        )

    async def work(session: Session) -> None:
        facts = await cluster_records(session)
        where = target if target in ("", HOME) else find(target, facts.peers).metadata.name
        wish = Wish(where, confirm=confirm, cancel=cancel, again=True)
        await Move(session, Key(namespace, claim), facts, wish).run(timeout)

    in_cluster(options, work)


@attrs.define
class Move:
    """The move of one claim; a step that failed in an earlier run is tried again by the first steps of this one."""

    session: Session
    key: Key
    facts: ClusterRecords
    wish: Wish

    async def run(self, timeout: float) -> None:
        """Take steps until there is none. Raises CliError."""
        session = self.session
        end = session.reactor.seconds() + timeout
        with Progress(session.reactor, "the move", quiet=session.options.is_document) as progress:
            while True:
                look = await observe(session, self.key, self.facts, self.wish.target)
                step = plan(look.seen, self.wish)
                if isinstance(step, Refused):
                    code = _CODES.get(step.reason, errors.REFUSED)
                    raise CliError(code, f"{self.key} is not moved: {step.message} ({step.reason})")
                record = look.seen.record
                if isinstance(step, Rest):
                    return self._say_rest(record)
                pause = await self._take(look, step, progress)
                if isinstance(step, End) and not pause:
                    return self._say_end(record, step)
                if session.reactor.seconds() >= end:
                    raise CliError(
                        errors.TIMED_OUT,
                        f"the move of {self.key} is not done after {timeout:g} s",
                        "the same command goes on; --timeout waits longer",
                    )
                if pause:
                    await deferLater(session.reactor, pause)

    async def _take(self, look: Look, step: Begin | Make | Remove | Note | Wait | End, progress: Progress) -> float:
        """Take a step; return the seconds until the next look."""
        record = look.seen.record
        try:
            match step:
                case Wait(what):
                    # What failed from here on failed in this run.
                    self.wish = attrs.evolve(self.wish, again=False)
                    progress.note(what)
                    return LOOK
                case Begin():
                    await self._begin(look)
                case Make(part) if record is not None:
                    await self._make(look, record, part)
                case Remove(part) if record is not None:
                    await self._remove(look, record, part)
                    return SOON
                case Note(phase) if record is not None:
                    await self._note(look, record, phase)
                    self.session.say(_DONE[phase])
                case End() if record is not None:
                    name = objects.record_name(self.key.name)
                    await self.session.client.delete(CONFIGMAPS, name, self.key.namespace, version=look.seen.version)
        except (AlreadyExists, Conflict):
            # Another run takes the same steps, or what was removed is not gone yet.
            return LOOK
        return 0.0

    async def _begin(self, look: Look) -> None:
        if look.claim is None:
            return
        uid, target = str(look.claim["metadata"]["uid"]), self.wish.target
        record = MoveRecord(
            id=objects.move_id(self.key, uid, target),
            claim=self.key.name,
            uid=uid,
            origin=look.seen.origin,
            target=target,
            phase="copying",
            body=objects.portable(look.claim),
        )
        await self.session.client.create(CONFIGMAPS, objects.record_body(record, self.key.namespace), view=None)
        self.session.say(f"moving {self.key} from {record.origin} to {target}")

    async def _make(self, look: Look, record: MoveRecord, part: Part) -> None:
        storage, namespace = self.session.settings.storage, self.key.namespace
        images = objects.Images(storage.restic_image, storage.restic_server_image)
        body: dict[str, Any]
        match part:
            case "secret":
                body = objects.secret(record, namespace, secrets.token_hex(24))
            case "service":
                body = objects.service(record, namespace)
            case "server":
                body = objects.server_pod(record, namespace, images)
            case "copy":
                body = objects.copy_claim(record, namespace)
            case "claim":
                body = objects.new_claim(record, namespace)
            case _:
                server = look.seen.server
                body = objects.job(record, namespace, part, images, "" if server is None else server.uid)
        await self.session.client.create(_RESOURCES[part], body, namespace, view=None)
        # A job of this run is no earlier one.
        self.wish = attrs.evolve(self.wish, again=False)

    async def _remove(self, look: Look, record: MoveRecord, part: Part) -> None:
        seen = look.seen
        name, uid = objects.name_of(record), ""
        match part:
            case "claim":
                # Never one of the same name that somebody made meanwhile.
                name, uid = record.claim, record.uid
            case "copy" if seen.copy is not None:
                uid = seen.copy.uid
            case "backup" | "restore" | "refill":
                name = objects.name_of(record, part)
        await self.session.client.delete(
            _RESOURCES[part], name, self.key.namespace, uid=uid, propagation="Background", missing_ok=True
        )

    async def _note(self, look: Look, record: MoveRecord, phase: Phase) -> None:
        noted = msgspec.structs.replace(record, phase=phase)
        patch = {
            "metadata": {"resourceVersion": look.seen.version},
            "data": objects.record_body(noted, self.key.namespace)["data"],
        }
        name = objects.record_name(record.claim)
        await self.session.client.patch(CONFIGMAPS, name, patch, self.key.namespace, view=None)

    def _say_rest(self, record: MoveRecord | None) -> None:
        if record is None:
            return
        self.session.say(f"the copy of {self.key} is at {record.target}, in the claim {objects.name_of(record)}")
        self.session.say("keep pods off the claim: what they write now is not in the copy")
        words = f"liqodctl move volume {self.key.name} -n {self.key.namespace}"
        self.session.say(f"`{words} --confirm` gives up the original, `--cancel` the copy")
        self._publish(record, "copied")

    def _say_end(self, record: MoveRecord | None, step: End) -> None:
        if record is None:
            return
        if step.moved:
            self.session.say(f"{self.key} is at {record.target}")
        else:
            self.session.say(f"the move of {self.key} is given up; its data is at {record.origin}, as it was")
        self._publish(record, "moved" if step.moved else "cancelled")

    def _publish(self, record: MoveRecord, state: str) -> None:
        self.session.publish(
            {
                "namespace": self.key.namespace,
                "claim": record.claim,
                "from": record.origin,
                "to": record.target,
                "state": state,
                "copy": objects.name_of(record) if state == "copied" else "",
            }
        )
