"""Renders the pages: values to HTML. Pure.

Every page has the same frame; what changes is in sections of ``#live``, which the script replaces one by one. Names
and messages come from peers: ``markup`` escapes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from liqod.cli.web.cluster_map import SHOWN, cluster_map, legend
from liqod.cli.web.markup import DOCTYPE, Child, Markup, join, tag
from liqod.cli.web.view import TONES, AdviceRow, Overview, PeerPage, PeerRow, ResourceUsage, TimelineEntry

SEVERITIES = {"error": "broken", "warning": "attention", "info": "quiet"}


def overview_page(page: Overview, trouble: str = "") -> str:
    """Return the first page; ``trouble`` says why it is not up to date, empty where it is."""
    peers = page.peers
    on_map = f"The map shows {SHOWN} of them; the table has all." if len(peers) > SHOWN else None
    map_section = section(
        "map",
        "Clusters",
        tag("p", page.summary, class_="summary"),
        on_map and tag("p", on_map),
        tag("div", cluster_map(page), id="map_scroll", class_="scroll", tabindex="0", role="region", aria_label="Map"),
        legend(peers),
    )
    body = [map_section, steps_section(page.steps), _peers_table(page)]
    return document(
        f"{page.home} · liqod", page.home, body, announcement=page.summary, trouble=trouble, foot=page.daemon
    )


def peer_html(page: PeerPage, trouble: str = "") -> str:
    """Return the page of one peer; ``trouble`` as above."""
    peer = page.peer
    state = f"{peer.name}: {peer.row['state']}, {TONES[peer.tone]}"
    about = section(
        "about",
        "State",
        tag("p", _badge(peer), " ", page.result, class_="summary"),
        tag("dl", [[tag("dt", what), tag("dd", value)] for what, value in page.details]),
    )
    offers = section(
        "offers",
        "Offers and capacity",
        _table("What is lent and borrowed", ("Direction", "Resources", "Verdict"), page.offers, "There are no offers."),
        _shares_table(peer.shares),
    )
    more = page.hidden_pods and tag("p", f"and {page.hidden_pods} more")
    heads = ("Pod", "Namespace", "Phase")
    shown: Child = tag("p", "The pods there were not read.")
    if page.pods is not None:
        shown = _table("Pods that run there", heads, page.pods, "No pod runs there.")
    pods = section("pods", "Pods", shown, more or None)
    body = [about, steps_section(page.steps), offers, pods, _timeline(page.timeline)]
    title = f"{peer.name} · {page.home} · liqod"
    return document(title, peer.name, body, announcement=state, trouble=trouble, up="../")


def error_page(code: str, message: str, advice: str, *, up: str | None = None) -> str:
    """Return the page where nothing could be read: what is wrong, and what to do."""
    shown = section("error", "Nothing can be shown", tag("p", f"{code}: {message}"), tag("p", advice, class_="advice"))
    return document("liqod", "liqod", [shown], announcement=f"{code}: {message}", up=up)


def document(
    title: str,
    heading: str,
    body: Sequence[Markup],
    *,
    announcement: str,
    trouble: str = "",
    foot: str = "",
    up: str | None = None,
) -> str:
    """Return a whole page; ``up`` is the way to the first page from one that is beneath it, such as "../"."""
    here = up or ""
    home = None if up is None else tag("nav", tag("a", "← all clusters", href=up or "./"), aria_label="Pages")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("link", rel="stylesheet", href=f"{here}style.css"),
        tag("link", rel="icon", href=f"{here}icon.svg"),
        tag("script", "", src=f"{here}live.js", defer=True),
    )
    content = tag(
        "body",
        tag("a", "Skip to the content", href="#live", class_="skip"),
        tag("header", home, tag("h1", heading)),
        tag("p", announcement, id="announcement", role="status", aria_live="polite", class_="hidden"),
        tag("p", trouble, id="trouble", role="alert", class_="trouble", hidden=not trouble),
        tag("main", *body, id="live", tabindex="-1"),
        tag("footer", tag("p", foot, id="foot"), tag("p", "Read-only. Each command on this page is yours to run.")),
    )
    return join([DOCTYPE, tag("html", head, content, lang="en")]).text + "\n"


def section(name: str, heading: str, *children: Child) -> Markup:
    """Return a part of a page under a heading; its ID has a character that no cluster's has."""
    return tag("section", tag("h2", heading, id=f"{name}_h"), *children, id=name, aria_labelledby=f"{name}_h")


def steps_section(steps: Sequence[AdviceRow]) -> Markup:
    """Return what is wrong and what to do about it."""
    shown: Child = tag("p", "Nothing is wrong, and nothing is to be done.")
    if steps:
        shown = tag("ol", [_step(step) for step in steps[:50]], class_="steps")
    more = tag("p", f"and {len(steps) - 50} more; `liqodctl status` has all") if len(steps) > 50 else None
    return section("next", "What to do next", shown, more)


def _step(step: AdviceRow) -> Markup:
    tone = SEVERITIES.get(step.severity, "quiet")
    since: Child = [" (since ", _time(step.since), ")"] if step.since else None
    advice = tag("p", step.advice, class_="advice") if step.advice else None
    text = tag("p", tag("span", step.severity, class_=f"badge {tone}"), " ", step.text, since)
    return tag("li", text, advice, class_=tone)


def _badge(peer: PeerRow) -> Markup:
    return tag("span", TONES[peer.tone], class_=f"badge {peer.tone}")


def _peers_table(page: Overview) -> Markup:
    heads = ("Peer", "State", "Borrowing", "Lending", "Pods", "Traffic", "Next")
    rows = [
        (
            tag("a", peer.name, href=f"peer/{quote(peer.id, safe='')}", id=f"row-{peer.id}"),
            [_badge(peer), " ", peer.row["state"]],
            peer.row["borrowing"],
            peer.row["lending"],
            peer.row["pods"],
            peer.traffic,
            peer.next,
        )
        for peer in page.peers
    ]
    more = tag("p", f"and {page.hidden} more; `liqodctl status` lists them") if page.hidden else None
    empty = f"{page.empty[:1].upper()}{page.empty[1:]}."
    return section("peers", "Peers", _table("All known clusters", heads, rows, empty), more)


def _shares_table(shares: Sequence[ResourceUsage]) -> Markup | None:
    if not shares:
        return None
    rows: list[Sequence[Child]] = [
        (
            share.resource,
            share.used,
            share.whole,
            [
                tag("meter", min=0, max=100, high=90, value=share.percent, aria_label=f"{share.resource} requested"),
                f" {share.percent} %",
            ],
        )
        for share in shares
    ]
    return _table("Capacity of the virtual node", ("Resource", "Requested", "Whole", "Share"), rows, "")


def _timeline(moments: Sequence[TimelineEntry]) -> Markup:
    rows = [(_time(one.at), one.what, one.state, one.why) for one in moments]
    heads = ("When", "What", "State", "Why")
    return section(
        "timeline", "Timeline", _table("Changes and events, the newest first", heads, rows, "Nothing happened yet.")
    )


def _time(at: str) -> Markup:
    return tag("time", at, datetime=at)


def _table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[Child]], empty: str) -> Markup | None:
    if not rows:
        return tag("p", empty) if empty else None
    # On a narrow screen a row becomes a list, in which each cell shows the heading of its column.
    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row", role="rowheader"),
            [tag("td", cell, data_head=head, role="cell") for head, cell in zip(heads[1:], row[1:], strict=True)],
            role="row",
        )
        for row in rows
    ]
    columns = [tag("th", head, scope="col", role="columnheader") for head in heads]
    return tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", columns, role="row"), role="rowgroup"),
        tag("tbody", body, role="rowgroup"),
        role="table",
    )
