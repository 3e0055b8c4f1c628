"""Elects the one virtual node of a lender that writes what is of a home namespace there."""

from __future__ import annotations

from collections.abc import Callable

from liqod.model.ids import ClusterID

Elected = Callable[[], None]
_Place = tuple[ClusterID, str, str]


class WriterElection:
    """The virtual nodes that would reflect a namespace, by lender and home namespace; the first does it.

    The others wait: two would write the same objects, each with what is particular to its node.
    """

    def __init__(self) -> None:
        self._waiting: dict[_Place, dict[object, Elected]] = {}
        self._closed = False

    def join(self, lender: ClusterID, local: str, elected: Elected, *, subject: str = "") -> Callable[[], None]:
        """Call ``elected`` when this node is elected, at once if nobody reflects the namespace.

        ``subject``: what is written, where that is not the reflected objects; each has an election of its own.
        Return the idempotent function that lets the next one be elected; call it when nothing is reflected any more.
        """
        place, token = (lender, local, subject), object()
        waiting = self._waiting.setdefault(place, {})
        waiting[token] = elected
        if len(waiting) == 1:
            elected()

        def leave() -> None:
            was_writer = next(iter(waiting), None) is token
            waiting.pop(token, None)
            if not waiting:
                # Another dictionary may be there by now: only an empty one of ours is dropped.
                if self._waiting.get(place) is waiting:
                    del self._waiting[place]
            elif was_writer and not self._closed:
                next(iter(waiting.values()))()

        return leave

    def close(self) -> None:
        """Elect nobody any more: all virtual nodes of this daemon stop."""
        self._closed = True
