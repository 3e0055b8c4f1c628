"""The durable link with one peer: when to dial. A typed machine; its drawing is in docs/peering.md.

States own their timers: a pending attempt exists only while Poised or Waiting. The machine knows nothing of addresses,
keys or sessions: events come in, and it starts the next attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import attrs
from automat import TypeMachineBuilder, pep614
from twisted.internet.interfaces import IDelayedCall, IReactorTime

SPACING: Final = 0.2
"""Seconds between the beginnings of two attempts at least, whatever hints come in: hints may be forged."""


class Link(Protocol):
    """What may happen to a link."""

    def wake(self) -> None:
        """Something makes an attempt promising now: a new address, a key was pinned, the peer answered somewhere."""

    def connected(self) -> None:
        """A session with the peer is established, from either side."""

    def retry(self, delay: float) -> None:
        """The attempt failed, or the session ended: dial after so many seconds."""

    def rest(self) -> None:
        """The attempt failed, or the session ended, and dialling makes no sense until something wakes the link."""

    def stop(self) -> None:
        """Dial no more."""

    def due(self) -> None:
        """The wait is over."""


@attrs.define
class LinkCore:
    """What the machine acts through. ``attempt`` begins one and answers later, ``abandon`` gives up one that is
    running.
    """

    clock: IReactorTime
    attempt: Callable[[], None]
    abandon: Callable[[], None]
    began: float = -1e9


def _make() -> Callable[[LinkCore], Link]:
    builder = TypeMachineBuilder(Link, LinkCore)

    def soon(link: Link, core: LinkCore) -> IDelayedCall:
        spaced = max(0.0, core.began + SPACING - core.clock.seconds())
        return core.clock.callLater(spaced, link.due)

    def later(link: Link, core: LinkCore, delay: float) -> IDelayedCall:
        return core.clock.callLater(max(delay, 0.0), link.due)

    idle = builder.state("Idle")
    poised = builder.state("Poised", soon)
    waiting = builder.state("Waiting", later)
    dialing = builder.state("Dialing")
    eager = builder.state("Eager")
    up = builder.state("Up")
    stopped = builder.state("Stopped")

    @pep614(poised.upon(Link.due).to(dialing))
    @pep614(waiting.upon(Link.due).to(dialing))
    def start(link: Link, core: LinkCore, spent: IDelayedCall) -> None:
        core.began = core.clock.seconds()
        core.attempt()

    @pep614(waiting.upon(Link.wake).to(poised))
    @pep614(poised.upon(Link.connected).to(up))
    @pep614(waiting.upon(Link.connected).to(up))
    def no_longer_wait(link: Link, core: LinkCore, pending: IDelayedCall) -> None:
        pending.cancel()

    # An attempt that lost the race to a session may outlive that session, so it is given up whatever the state.
    @pep614(poised.upon(Link.stop).to(stopped))
    @pep614(waiting.upon(Link.stop).to(stopped))
    def give_up_waiting(link: Link, core: LinkCore, pending: IDelayedCall) -> None:
        pending.cancel()
        core.abandon()

    @pep614(idle.upon(Link.stop).to(stopped))
    @pep614(dialing.upon(Link.stop).to(stopped))
    @pep614(eager.upon(Link.stop).to(stopped))
    @pep614(up.upon(Link.stop).to(stopped))
    def give_up(link: Link, core: LinkCore) -> None:
        core.abandon()

    # A hint that came while an attempt was under way may be about what made it fail: the next one follows at once.
    dialing.upon(Link.wake).to(eager).returns(None)
    eager.upon(Link.wake).loop().returns(None)

    @pep614(eager.upon(Link.retry).to(idle))
    def again_at_once(link: Link, core: LinkCore, delay: float) -> None:
        core.clock.callLater(0, link.wake)

    @pep614(eager.upon(Link.rest).to(idle))
    def again_after_all(link: Link, core: LinkCore) -> None:
        core.clock.callLater(0, link.wake)

    idle.upon(Link.wake).to(poised).returns(None)
    idle.upon(Link.retry).to(waiting).returns(None)
    dialing.upon(Link.retry).to(waiting).returns(None)
    dialing.upon(Link.rest).to(idle).returns(None)
    up.upon(Link.retry).to(waiting).returns(None)
    up.upon(Link.rest).to(idle).returns(None)
    for state in (idle, dialing, eager):
        state.upon(Link.connected).to(up).returns(None)

    # What needs no answer.
    up.upon(Link.wake).loop().returns(None)
    up.upon(Link.connected).loop().returns(None)
    idle.upon(Link.rest).loop().returns(None)
    poised.upon(Link.wake, nodata=True).loop().returns(None)
    for timed in (poised, waiting):
        timed.upon(Link.retry, nodata=True).loop().returns(None)
        timed.upon(Link.rest, nodata=True).loop().returns(None)
    for outcome in (Link.wake, Link.connected, Link.rest, Link.stop, Link.due):
        stopped.upon(outcome).loop().returns(None)
    stopped.upon(Link.retry).loop().returns(None)
    return builder.build()


make_link: Final = _make()
"""Return a link in its first state: idle until something wakes it."""
