"""Folded stacks, as samplers write them: what they are spent on, and a flame graph as one SVG file. Pure.

Source: Brendan Gregg, "Flame Graphs": a frame's width is the time in it and in what it calls; the order has no meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from xml.sax.saxutils import escape

from attrs import field, frozen

Stacks = dict[tuple[str, ...], float]
"""Milliseconds by stack, outermost frame first."""

OTHER: Final = "other"
_Patterns = Sequence[tuple[str, re.Pattern[str]]]
_FEATURES: Final[_Patterns] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("quota", r"resourcequota|pkg/quota/"),
        ("admission policies", r"admission/plugin/policy|cel-go|apiserver/pkg/cel"),
        ("webhook call", r"admission/plugin/webhook"),
        ("managed fields", r"managedfields|structured-merge-diff"),
        ("signatures", r"crypto/rsa|crypto/ecdsa|serviceaccount\.\(\*jwt|go-jose"),
        ("authentication and authorization", r"pkg/authentication/|pkg/authorization/|auth/authorizer/"),
    )
)
"""What a request is made to do, by patterns of frames; all that is done for it counts, whatever it takes."""
_MEANS: Final[_Patterns] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("watches", r"storage/cacher|handlers\.\(\*WatchServer|client-go/tools/cache|watch\.\(\*StreamWatcher"),
        ("storage", r"storage/etcd3|etcd/client|go\.etcd\.io|google\.golang\.org/grpc"),
        ("JSON and other encodings", r"encoding/|json|protobuf|cbor|runtime/serializer"),
        ("garbage collection", r"runtime\.gc|runtime\.bgsweep|runtime\.scanobject"),
        ("TLS and HTTP", r"crypto/tls|net/http|http2"),
        ("request handlers", r"apiserver/pkg/endpoints/handlers|apiserver/pkg/registry/"),
    )
)
"""What it is done by, where it is for none of these."""
_AROUND: Final = re.compile(
    r"ServeHTTP|apiserver/pkg/(endpoints|server)/filter|net/http\.\(\*conn\)\.serve|erverConn\)\.runHandler"
)
"""Frames that are around every request, and so say nothing of it: filters call the handler that they stand before."""
_UNITS: Final = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3, "mins": 6e4}
_TRACE: Final = re.compile(r"^\s*([\d.]+)(ns|us|µs|ms|s|mins)\s+(\S.*)$")
_WIDTH: Final = 1600.0
_HEIGHT: Final = 15
_LEAST: Final = 0.4
"""Pixels: a frame that is narrower is left out, with all above it."""
_CHARACTER: Final = 6.4
"""Pixels of a character at the size that the frames' names have."""


def of_go(traces: str) -> Stacks:
    """Return the stacks in what ``go tool pprof -traces`` prints of a CPU profile; there the innermost is first."""
    stacks: Stacks = {}
    spent, frames = 0.0, list[str]()
    for line in [*traces.splitlines(), "-"]:
        begin = _TRACE.match(line)
        if begin is not None and not frames:
            spent, frames = float(begin[1]) * _UNITS[begin[2]], [begin[3]]
        elif line.startswith("-"):
            if frames:
                _add(stacks, tuple(reversed(frames)), spent)
            frames = []
        elif frames and line.strip():
            frames.append(line.strip())
    return stacks


def of_python(folded: str, interval: float) -> Stacks:
    """Return the stacks in the folded lines of a sampler, each "frame;frame count", sampled every ``interval`` ms."""
    stacks: Stacks = {}
    for line in folded.splitlines():
        names, _, count = line.rpartition(" ")
        if names and count.isdigit():
            _add(stacks, tuple(names.split(";")), int(count) * interval)
    return stacks


def under(name: str, stacks: Stacks) -> Stacks:
    """Return the stacks with one more frame below all of them."""
    return {(name, *stack): spent for stack, spent in stacks.items()}


def parts(stacks: Stacks) -> dict[str, float]:
    """Return how many milliseconds of a Go program's stacks are spent on what, most first.

    A stack counts as the innermost of its frames that is a feature's; without one as the innermost that is a means.
    """
    found: dict[str, float] = {}
    for stack, spent in stacks.items():
        frames = [frame for frame in reversed(stack) if not _AROUND.search(frame)]
        part = _innermost(frames, _FEATURES) or _innermost(frames, _MEANS) or OTHER
        found[part] = found.get(part, 0.0) + spent
    return dict(sorted(found.items(), key=lambda one: -one[1]))


def _innermost(frames: Iterable[str], patterns: _Patterns) -> str:
    """Return what the first frame that any pattern matches is of; empty without one."""
    return next((name for frame in frames for name, pattern in patterns if pattern.search(frame)), "")


@frozen
class _Frame:
    """A function with what it calls; ``spent`` includes that."""

    name: str
    spent: float
    inner: Sequence[_Frame] = field(factory=list)


def _tree(name: str, stacks: Stacks) -> _Frame:
    by_first: dict[str, Stacks] = {}
    for stack, spent in stacks.items():
        if stack:
            _add(by_first.setdefault(stack[0], {}), stack[1:], spent)
    inner = [_tree(first, rest) for first, rest in sorted(by_first.items())]
    return _Frame(name, sum(stacks.values()), inner)


def svg(title: str, stacks: Stacks, *, unit: float = 1.0) -> str:
    """Return a flame graph: each frame with its name and its milliseconds, divided by ``unit``, as its tooltip."""
    total = sum(stacks.values())
    root = _tree(title, {stack: spent for stack, spent in stacks.items() if spent})
    scale = _WIDTH / total if total else 0.0
    height = (_visible_depth(root, scale) + 1) * _HEIGHT
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH:.0f}" height="{height}" '
        f'font-family="monospace" font-size="11">'
    )
    return "\n".join([head, *_drawn(root, 0.0, height - _HEIGHT, scale, unit), "</svg>", ""])


def _visible_depth(frame: _Frame, scale: float) -> int:
    seen = [_visible_depth(one, scale) for one in frame.inner if one.spent * scale >= _LEAST]
    return 1 + max(seen, default=0)


def _drawn(frame: _Frame, x: float, y: float, scale: float, unit: float) -> Iterator[str]:
    width = frame.spent * scale
    name = escape(frame.name)
    shown = escape(_fitting(frame.name, width))
    hue = 15 + sum(frame.name.encode()) % 40
    yield (
        f'<g><title>{name}: {frame.spent / unit:.3g} ms</title><rect x="{x:.1f}" y="{y:.0f}" width="{width:.1f}" '
        f'height="{_HEIGHT - 1}" fill="hsl({hue},85%,65%)"/><text x="{x + 2:.1f}" y="{y + 11:.0f}">{shown}</text></g>'
    )
    for one in frame.inner:
        if one.spent * scale >= _LEAST:
            yield from _drawn(one, x, y - _HEIGHT, scale, unit)
        x += one.spent * scale


def _fitting(name: str, width: float) -> str:
    room = int((width - 4) / _CHARACTER)
    return name if len(name) <= room else name[: room - 2] + ".." if room > 4 else ""


def merged(all_of_them: Iterable[Stacks]) -> Stacks:
    """Return several programs' stacks as one."""
    found: Stacks = {}
    for stacks in all_of_them:
        for stack, spent in stacks.items():
            _add(found, stack, spent)
    return found


def _add(stacks: Stacks, stack: tuple[str, ...], spent: float) -> None:
    stacks[stack] = stacks.get(stack, 0.0) + spent
