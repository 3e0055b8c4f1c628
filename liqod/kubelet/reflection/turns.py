"""Has one virtual node of a lender write what is of a home namespace there, however many of its nodes offload it."""

from __future__ import annotations

from collections.abc import Callable

from liqod.model.ids import ClusterID

Take = Callable[[], None]
_Place = tuple[ClusterID, str, str]


class Turns:
    """The virtual nodes that would reflect a namespace, by lender and home namespace; the first does it.

    The others wait: two would write the same objects, each with what is particular to its node.
    """

    def __init__(self) -> None:
        self._waiting: dict[_Place, dict[object, Take]] = {}
        self._closed = False

    def join(self, lender: ClusterID, local: str, take: Take, *, subject: str = "") -> Callable[[], None]:
        """Call ``take`` when it is this node's turn, at once if nobody reflects the namespace.

        ``subject``: what is written, where that is not the reflected objects; each has turns of its own.
        Return the idempotent function that gives the turn to the next one; call it when nothing is reflected any more.
        """
        place, token = (lender, local, subject), object()
        waiting = self._waiting.setdefault(place, {})
        waiting[token] = take
        if len(waiting) == 1:
            take()

        def leave() -> None:
            had_turn = next(iter(waiting), None) is token
            waiting.pop(token, None)
            if not waiting:
                # Another dictionary may be there by now: only an empty one of ours is dropped.
                if self._waiting.get(place) is waiting:
                    del self._waiting[place]
            elif had_turn and not self._closed:
                next(iter(waiting.values()))()

        return leave

    def close(self) -> None:
        """Give no more turns on: all virtual nodes of this daemon stop."""
        self._closed = True
