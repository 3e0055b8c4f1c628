"""When to dial one peer, as a state machine (automat); its drawing is in docs/peering.md.

States own their timers: a pending attempt exists only while Poised or Waiting. The machine does not know addresses,
keys or sessions: it gets events, and starts the next attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import attrs
from automat import TypeMachineBuilder, pep614
from twisted.internet.interfaces import IDelayedCall, IReactorTime

SPACING: Final = 0.2
"""Minimum seconds between the starts of two attempts, for any number of hints: hints may be forged."""


class DialLink(Protocol):
    """The events of a link."""

    def wake(self) -> None:
        """Dial soon because an attempt may succeed now: a new address, a new pin, a sign of the peer."""

    def connected(self) -> None:
        """A session with the peer was established, dialled by either side."""

    def retry(self, delay: float) -> None:
        """The attempt failed, or the session ended: dial after ``delay`` seconds."""

    def rest(self) -> None:
        """The attempt failed, or the session ended: do not dial until ``wake``."""

    def stop(self) -> None:
        """Stop dialling."""

    def due(self) -> None:
        """The delay is over."""


@attrs.define
class LinkCore:
    """The machine's outputs: ``attempt`` starts an attempt and reports its result later, ``abandon`` cancels it."""

    clock: IReactorTime
    attempt: Callable[[], None]
    abandon: Callable[[], None]
    began: float = -1e9


def _make() -> Callable[[LinkCore], DialLink]:
    builder = TypeMachineBuilder(DialLink, LinkCore)

    def soon(link: DialLink, core: LinkCore) -> IDelayedCall:
        spaced = max(0.0, core.began + SPACING - core.clock.seconds())
        return core.clock.callLater(spaced, link.due)

    def later(link: DialLink, core: LinkCore, delay: float) -> IDelayedCall:
        return core.clock.callLater(max(delay, 0.0), link.due)

    idle = builder.state("Idle")
    poised = builder.state("Poised", soon)
    waiting = builder.state("Waiting", later)
    dialing = builder.state("Dialing")
    eager = builder.state("Eager")
    up = builder.state("Up")
    stopped = builder.state("Stopped")

    @pep614(poised.upon(DialLink.due).to(dialing))
    @pep614(waiting.upon(DialLink.due).to(dialing))
    def start(link: DialLink, core: LinkCore, spent: IDelayedCall) -> None:
        core.began = core.clock.seconds()
        core.attempt()

    @pep614(waiting.upon(DialLink.wake).to(poised))
    @pep614(poised.upon(DialLink.connected).to(up))
    @pep614(waiting.upon(DialLink.connected).to(up))
    def no_longer_wait(link: DialLink, core: LinkCore, pending: IDelayedCall) -> None:
        pending.cancel()

    # An attempt may outlive the session that was faster, so it is cancelled in every state.
    @pep614(poised.upon(DialLink.stop).to(stopped))
    @pep614(waiting.upon(DialLink.stop).to(stopped))
    def give_up_waiting(link: DialLink, core: LinkCore, pending: IDelayedCall) -> None:
        pending.cancel()
        core.abandon()

    @pep614(idle.upon(DialLink.stop).to(stopped))
    @pep614(dialing.upon(DialLink.stop).to(stopped))
    @pep614(eager.upon(DialLink.stop).to(stopped))
    @pep614(up.upon(DialLink.stop).to(stopped))
    def give_up(link: DialLink, core: LinkCore) -> None:
        core.abandon()

    # A hint during an attempt may concern the cause of its failure: the next attempt follows at once.
    dialing.upon(DialLink.wake).to(eager).returns(None)
    eager.upon(DialLink.wake).loop().returns(None)

    @pep614(eager.upon(DialLink.retry).to(idle))
    def again_at_once(link: DialLink, core: LinkCore, delay: float) -> None:
        core.clock.callLater(0, link.wake)

    @pep614(eager.upon(DialLink.rest).to(idle))
    def again_after_all(link: DialLink, core: LinkCore) -> None:
        core.clock.callLater(0, link.wake)

    idle.upon(DialLink.wake).to(poised).returns(None)
    idle.upon(DialLink.retry).to(waiting).returns(None)
    dialing.upon(DialLink.retry).to(waiting).returns(None)
    dialing.upon(DialLink.rest).to(idle).returns(None)
    up.upon(DialLink.retry).to(waiting).returns(None)
    up.upon(DialLink.rest).to(idle).returns(None)
    for state in (idle, dialing, eager):
        state.upon(DialLink.connected).to(up).returns(None)

    # Events without an effect.
    up.upon(DialLink.wake).loop().returns(None)
    up.upon(DialLink.connected).loop().returns(None)
    idle.upon(DialLink.rest).loop().returns(None)
    poised.upon(DialLink.wake, nodata=True).loop().returns(None)
    for timed in (poised, waiting):
        timed.upon(DialLink.retry, nodata=True).loop().returns(None)
        timed.upon(DialLink.rest, nodata=True).loop().returns(None)
    for outcome in (DialLink.wake, DialLink.connected, DialLink.rest, DialLink.stop, DialLink.due):
        stopped.upon(outcome).loop().returns(None)
    stopped.upon(DialLink.retry).loop().returns(None)
    return builder.build()


make_link: Final = _make()
"""Return a link in its first state: idle until something wakes it."""
