"""The namespace of a run: made first, deleted in every case, and with it what earlier runs left."""

from __future__ import annotations

import secrets

import attrs
from twisted.internet.defer import CancelledError

from liqod.cli.console import terminal
from liqod.cli.console.session import Session
from liqod.cli.network.connectivity import leftovers, objects, origin
from liqod.kube.errors import ApiError, KubeError
from liqod.kube.resources import NAMESPACES
from liqod.model.names import CONNECTIVITY_TEST_LABEL
from liqod.model.objects.meta import Object


@attrs.define
class Space:
    """A context with a namespace of its own; ``keep`` leaves it to the next run, so that its pods can be looked at."""

    session: Session
    keep: bool = False
    name: str = attrs.field(init=False, factory=lambda: f"{leftovers.PREFIX}{secrets.token_hex(3)}")

    async def __aenter__(self) -> Space:
        me = origin.own()
        try:
            made: Object = await self.session.client.create(NAMESPACES, objects.namespace(self.name, me), view=Object)
            await self._sweep(me, made.metadata.creation_timestamp or "")
        except ApiError:
            # The API server refused it; what the sweep is refused is no failure.
            raise
        except BaseException:
            # A request that was cut off may have been carried out.
            await self._delete()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.keep:
            terminal.echo_wrapped(
                f"kept as asked: the namespace {self.name}; the next run deletes it, and so does "
                f"`kubectl delete namespace {self.name}`",
                err=True,
            )
            return
        await self._delete()

    async def _delete(self) -> None:
        try:
            try:
                await self.session.client.delete(NAMESPACES, self.name)
            except CancelledError:
                # Ctrl-C at the end of a run: the request was cut off, and is sent again.
                await self.session.client.delete(NAMESPACES, self.name)
                raise
        except KubeError as error:
            text = f"the namespace {self.name} is not deleted: {error}; the next run of `liqodctl test` deletes it"
            terminal.echo_wrapped(text, "yellow", err=True)

    async def _sweep(self, me: str, created: str) -> None:
        """Delete what earlier runs left, as far as this user may."""
        client = self.session.client
        try:
            present = (await client.list(NAMESPACES, labels=f"{CONNECTIVITY_TEST_LABEL}=true")).items
            for name, uid in leftovers.left_over(present, me, created, origin.runs):
                await client.delete(NAMESPACES, name, uid=uid)
                terminal.echo_wrapped(f"deleted what an earlier run left: the namespace {name}", err=True)
        except KubeError as error:
            terminal.echo_wrapped(f"what earlier runs may have left is not deleted: {error}", err=True)
