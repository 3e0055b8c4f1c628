"""Draws the map: this cluster in the middle, its peers on both sides, a line to each. Pure.

The style of a line goes by the state of the peer, which stands in words in its box as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from liqod.cli.web.markup import Markup, tag
from liqod.cli.web.view import TONES, Overview, PeerRow, ResourceUsage
from liqod.model.text import clean_text

WIDTH: Final = 960
BOX: Final = (270, 122)
HOME: Final = (190, 84)
PITCH: Final = 146
"""From the top of a box to that of the next one."""
SHOWN: Final = 16
"""Peers on the map; the table beneath it has all of them."""
LETTERS: Final = 24


def cluster_map(page: Overview) -> Markup:
    """Return the map (SVG); each peer is a link to its page."""
    peers = page.peers[:SHOWN]
    rows = max(1, (len(peers) + 1) // 2)
    height = rows * PITCH
    lines, boxes = [], []
    for number, peer in enumerate(peers):
        is_right = number % 2 == 0
        side = (len(peers) + 1) // 2 if is_right else len(peers) // 2
        middle = round((number // 2 + 0.5) * height / side)
        lines.append(_line(peer, height // 2, middle, 1 if is_right else -1))
        boxes.append(_box(peer, WIDTH - BOX[0] - 2 if is_right else 2, middle - BOX[1] // 2))
    return tag(
        "svg",
        lines,
        _home(page.home, height // 2),
        boxes,
        viewBox=f"0 0 {WIDTH} {height}",
        class_="map",
        role="group",
        aria_label=f"Map: {page.home} in the middle, {page.summary}",
    )


def _home(name: str, middle: int) -> Markup:
    left, top = (WIDTH - HOME[0]) // 2, middle - HOME[1] // 2
    return tag(
        "g",
        tag("rect", x=left, y=top, width=HOME[0], height=HOME[1], rx=42),
        _text(WIDTH // 2, middle - 4, _cut(name), "name centre"),
        _text(WIDTH // 2, middle + 20, "this cluster", "small centre"),
        class_="home",
    )


def _line(peer: PeerRow, start: int, end: int, side: int) -> Markup:
    near, far = WIDTH // 2 + side * HOME[0] // 2, WIDTH // 2 + side * (WIDTH // 2 - BOX[0] - 2)
    bend = (near + far) // 2
    return tag("path", class_=f"line {peer.tone}", d=f"M{near} {start} C{bend} {start} {bend} {end} {far} {end}")


def _box(peer: PeerRow, left: int, top: int) -> Markup:
    row = peer.row
    sharing = f"borrowing {row['borrowing'] or 'nothing'}; lending {row['lending'] or 'nothing'}"
    said = f"{peer.name}: {row['state']}, {TONES[peer.tone]}; {sharing}; {peer.traffic or 'no tunnel'}"
    resources = f"↓ {row['borrowing'] or 'nothing borrowed'}"
    lent = f"↑ {row['lending'] or 'nothing lent'}"
    inside = [
        tag("rect", x=left, y=top, width=BOX[0], height=BOX[1], rx=10),
        _text(left + 14, top + 24, _cut(peer.name), "name"),
        _text(left + 14, top + 44, f"{_cut(str(row['state']))} · {TONES[peer.tone]}", "state"),
        _text(left + 14, top + 64, _cut(resources, 36), "small"),
        _text(left + 14, top + 82, _cut(lent, 36), "small"),
        _text(left + 14, top + 100, _cut(peer.traffic or "no tunnel", 36), "small"),
        _bar(peer.shares[0], left + 14, top + 108) if peer.shares else None,
    ]
    return tag(
        "a", *inside, href=f"peer/{quote(peer.id, safe='')}", aria_label=said, id=f"map-{peer.id}", class_=peer.tone
    )


def _bar(share: ResourceUsage, left: int, top: int) -> Markup:
    whole = BOX[0] - 28
    return tag(
        "g",
        tag("rect", x=left, y=top, width=whole, height=5, rx=2, class_="room"),
        tag("rect", x=left, y=top, width=whole * share.percent // 100, height=5, rx=2, class_="used"),
        aria_hidden="true",
    )


def _text(x: int, y: int, text: str, class_: str) -> Markup:
    return tag("text", text, x=x, y=y, class_=class_)


def _cut(text: str, letters: int = LETTERS) -> str:
    return clean_text(text, letters, ellipsis=True)


def legend(peers: Sequence[PeerRow]) -> Markup:
    """Return what the lines on the map mean, for the states that are on it."""
    shown = [tone for tone in TONES if any(peer.tone == tone for peer in peers[:SHOWN])]
    samples = [
        tag(
            "li",
            tag(
                "svg",
                tag("path", d="M2 6 H46", class_=f"line {tone}"),
                viewBox="0 0 48 12",
                class_="sample",
                aria_hidden="true",
            ),
            TONES[tone],
        )
        for tone in shown
    ]
    return tag("ul", samples, class_="legend", aria_label="Lines on the map")
