"""Records become rows, rows become tables, JSON and YAML; hostile texts stay texts."""

from __future__ import annotations

import io
import json
import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import yaml
from hypothesis import given
from hypothesis.strategies import fixed_dictionaries, integers, lists, none, text
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.console import terminal
from liqod.cli.console.errors import AMBIGUOUS, NO_SUCH_PEER, CliError
from liqod.cli.console.findings import bad, failed, good, lines, warning
from liqod.cli.console.options import Options
from liqod.cli.console.records import _documents
from liqod.cli.console.render import Format, age, as_documents, as_text, cell
from liqod.cli.console.table import display_width, fold, layout
from liqod.cli.status.peers import STATUS_COLUMNS, STATUS_WIDE, brief, discover_rows, find, status_rows
from liqod.model.diagnosis.cluster import ClusterRecords
from liqod.model.objects.meta import Condition, ObjectMeta
from liqod.model.objects.node import Node, NodeSpec, NodeStatus
from liqod.model.records.network import Decision, NetworkConfig, NetworkConfigSpec
from liqod.model.records.offer import Offer
from liqod.model.records.views import (
    Advertisement,
    AdvertisementSpec,
    AdvertisementStatus,
    Endpoint,
    ForeignCluster,
    ForeignClusterSpec,
    ForeignClusterStatus,
    Lent,
    Reclaim,
    VirtualNode,
    VirtualNodeSpec,
)


def shown(
    rows: list[dict[str, object]], columns: dict[str, str], width: int | None = None, beneath: Sequence[str] = ()
) -> str:
    return "".join("".join(part for part, _ in line) + "\n" for line in layout(rows, columns, width, beneath))


def facts(*peers: ForeignCluster, **more: Any) -> ClusterRecords:
    return ClusterRecords(peers=peers, **more)


def real_node(name: str, *, ready: str = "True", unschedulable: bool = False) -> Node:
    conditions = [Condition("Ready", ready)]
    return Node(
        metadata=ObjectMeta(name=name),
        spec=NodeSpec(unschedulable=unschedulable),
        status=NodeStatus(conditions=conditions),
    )


def cluster(peer: str, name: str = "", **status: object) -> ForeignCluster:
    return ForeignCluster(
        metadata=ObjectMeta(name=peer),
        spec=ForeignClusterSpec(cluster_id=peer),
        status=ForeignClusterStatus(cluster_name=name, **status),  # type: ignore[arg-type]
    )


class FindingTests(SynchronousTestCase):
    def test_by_id_and_name(self) -> None:
        """A peer is found by its ID, by its name, and by ``id:`` and its ID."""
        peers = [cluster("c1", "rome"), cluster("c2", "milan"), cluster("c3", "c3")]
        self.assertEqual(find("c2", peers).metadata.name, "c2")
        self.assertEqual(find("milan", peers).metadata.name, "c2")
        self.assertEqual(find("c1", peers).metadata.name, "c1")
        self.assertEqual(find("c3", peers).metadata.name, "c3")
        self.assertEqual(find("id:c1", peers).metadata.name, "c1")

    def test_an_id_that_is_the_name_of_another(self) -> None:
        """A stranger whose ID is the name of a peer is not taken for that peer, nor the other way round."""
        peers = [cluster("milan"), cluster("c2", "milan")]
        error = self.assertRaises(CliError, find, "milan", peers)
        self.assertEqual(error.code, AMBIGUOUS)
        self.assertEqual(find("id:milan", peers).metadata.name, "milan")
        self.assertEqual(find("c2", peers).metadata.name, "c2")

    def test_ambiguous(self) -> None:
        """A name that two peers have names neither; the complaint lists both IDs."""
        error = self.assertRaises(CliError, find, "rome", [cluster("c1", "rome"), cluster("c2", "rome")])
        self.assertEqual(error.code, AMBIGUOUS)
        self.assertIn("c1, c2", error.message)

    def test_unknown(self) -> None:
        """An unknown name is answered with those that are known."""
        error = self.assertRaises(CliError, find, "turin", [cluster("c1", "rome")])
        self.assertEqual(error.code, NO_SUCH_PEER)
        self.assertIn("known: rome", error.message)
        error = self.assertRaises(CliError, find, "rom", [cluster("c1", "rome")])
        self.assertIn("did you mean rome?", error.message)


class StatusTests(SynchronousTestCase):
    def test_a_peer_without_tunnel(self) -> None:
        """Where it was decided that there is none, the row says so, and why; while it is open, that as well."""
        for mode, reason, shown in (
            ("none", "HostLacks", "none (HostLacks)"),
            ("auto", "", "not decided yet"),
            ("", "", ""),
        ):
            spec = NetworkConfigSpec(decision=Decision(mode=mode, reason=reason))
            config = NetworkConfig(metadata=ObjectMeta(name="c2"), spec=spec)
            (row,) = status_rows(facts(cluster("c2", "milan"), networks=[config]), {})
            self.assertEqual(row["tunnel"], shown)

    def test_full_row(self) -> None:
        """A row puts together what the records of one peer say."""
        peer = cluster("c2", "milan", phase="Ready", lent=Lent(resources={"cpu": "2"}, verdict="Accepted"), api="relay")
        offer = Advertisement(
            metadata=ObjectMeta(name="advertisement-c2"),
            spec=AdvertisementSpec(offer=Offer(resources={"cpu": "4", "memory": "8Gi", "x.com/gpu": "1"})),
            status=AdvertisementStatus(phase="Accepted"),
        )
        node = VirtualNode(spec=VirtualNodeSpec(cluster_id="c2", node_name="liqo-milan"))
        known = facts(peer, offers=[offer], virtual_nodes=[node], nodes=[real_node("liqo-milan", unschedulable=True)])
        (row,) = status_rows(known, {"liqo-milan": 3})
        self.assertEqual(
            row,
            {
                "name": "milan",
                "id": "c2",
                "phase": "Ready",
                "state": "Ready,cordoned",
                "why": "",
                "offer": "cpu 4, memory 8Gi, and 1 more",
                "decision": "Accepted",
                "borrowing": "cpu 4, mem 8Gi",
                "lent": "cpu 2",
                "verdict": "Accepted",
                "lending": "cpu 2",
                "node": "liqo-milan",
                "nodes": ["liqo-milan"],
                "slices": [],
                "cordoned": True,
                "api": "relay",
                "tunnel": "",
                "pods": 3,
                "stranger": False,
            },
        )
        self.assertIn("liqo-milan", shown([row], STATUS_COLUMNS))

    def test_what_is_lent(self) -> None:
        """Our offer is shown with the peer's verdict on it, or as offered before there is one, or as reclaimed."""
        lent = {"cpu": "2"}
        table = (
            (None, None, ""),
            (Lent(resources=lent), None, "offered (cpu 2)"),
            (Lent(resources=lent, verdict="Accepted"), None, "cpu 2"),
            (Lent(resources=lent, verdict="Refused"), None, "refused (cpu 2)"),
            (Lent(resources=lent, verdict="Accepted"), Reclaim(), "reclaimed (cpu 2)"),
            (Lent(), None, "offered"),
            (None, Reclaim(), ""),
        )
        for offer, reclaim, expected in table:
            peer = cluster("c2", "milan", lent=offer)
            peer = msgspec.structs.replace(peer, spec=ForeignClusterSpec(cluster_id="c2", reclaim=reclaim))
            (row,) = status_rows(facts(peer), {})
            self.assertEqual(row["lending"], expected, (offer, reclaim))

    def test_why(self) -> None:
        """The reason shown is the peer's own, else that of the first step that does not hold."""
        broken = [
            Condition("Discovered", "True"),
            Condition("Authenticated", "False", "KeyUnknown", "nobody trusts it"),
        ]
        first = cluster("c1", phase="TrustPending", conditions=broken)
        second = cluster("c2", phase="Refused", reason="ClusterIDRepetition", message="two keys", conditions=broken)
        rows = status_rows(facts(second, first), {})
        self.assertEqual(
            [row["why"] for row in rows], ["KeyUnknown: nobody trusts it", "ClusterIDRepetition: two keys"]
        )

    def test_node_not_ready(self) -> None:
        """A virtual node that is not there or not ready says so."""
        node = VirtualNode(spec=VirtualNodeSpec(cluster_id="c2", node_name="liqo-milan"))
        (absent,) = status_rows(facts(cluster("c2"), virtual_nodes=[node]), {})
        down_node = real_node("liqo-milan", ready="False")
        (down,) = status_rows(facts(cluster("c2"), virtual_nodes=[node], nodes=[down_node]), {})
        self.assertEqual((absent["node"], down["node"]), ("liqo-milan (not created yet)", "liqo-milan (not ready)"))

    def test_several_nodes(self) -> None:
        """All nodes of a peer are shown: in one cell the first that is not ready, or the peer's own, and a count."""
        own = VirtualNode(
            metadata=ObjectMeta(name="c2", namespace="liqo-tenant-c2"),
            spec=VirtualNodeSpec(cluster_id="c2", node_name="liqo-milan"),
        )
        further = VirtualNode(
            metadata=ObjectMeta(name="gpu"), spec=VirtualNodeSpec(cluster_id="c2", node_name="gpu-milan")
        )
        for ready, shown_node, others in (
            ("True", "liqo-milan (+1)", ["liqo-milan", "gpu-milan"]),
            ("False", "gpu-milan (not ready) (+1)", ["liqo-milan", "gpu-milan (not ready)"]),
        ):
            nodes = [real_node("liqo-milan"), real_node("gpu-milan", ready=ready, unschedulable=True)]
            known = facts(cluster("c2", "milan", phase="Ready"), virtual_nodes=[further, own], nodes=nodes)
            (row,) = status_rows(known, {"liqo-milan": 3, "gpu-milan": 2})
            self.assertEqual((row["node"], row["nodes"], row["pods"]), (shown_node, others, 5))
            self.assertIn("partly cordoned", row["state"])
            self.assertIn(others[1], shown([row], STATUS_WIDE))

    def test_the_words_of_a_key_stay_together(self) -> None:
        """Where a terminal is narrow, everything else is folded before the words that people compare."""
        said = "jaguar-pirate-meadow-vacuum-fountain-umbrella"
        row: dict[str, object] = {
            "id": "83c5180b-04f2-4ad1-96ae-c9b8bbc020c7",
            "words": said,
            "addresses": "[fe80::1]:5872, " * 4,
        }
        columns = {"id": "CLUSTER ID", "words": "FINGERPRINT WORDS", "addresses": "AT"}
        self.assertIn(said, shown([row], columns, 80, ["words"]))

    def test_discover(self) -> None:
        """Each address and each way of finding is shown once."""
        endpoints = [Endpoint("a:1", "mDNS"), Endpoint("b:1", "mDNS"), Endpoint("a:1", "Manual")]
        (row,) = discover_rows(
            [cluster("c2", "milan", endpoints=endpoints, conditions=[Condition("Authenticated", "True")])]
        )
        self.assertEqual((row["found"], row["addresses"], row["trusted"]), (["Manual", "mDNS"], ["a:1", "b:1"], True))

    def test_brief(self) -> None:
        """Resources are cut down to those people look at."""
        self.assertEqual(brief({}), "")
        self.assertEqual(brief({"pods": "3", "cpu": "1"}), "cpu 1, pods 3")


class LayoutTests(SynchronousTestCase):
    """Tables on terminals of any width."""

    def test_status_at_80(self) -> None:
        """A healthy peer takes one line of 80 columns."""
        row: dict[str, object] = {
            "name": "milan",
            "state": "Ready",
            "borrowing": "cpu 4, memory 8Gi",
            "lending": "cpu 2, memory 4Gi",
            "node": "liqo-milan",
            "pods": 3,
        }
        self.assertEqual(len(shown([row], STATUS_COLUMNS, 80).splitlines()), 2)

    @given(
        rows=lists(
            fixed_dictionaries({key: text(max_size=60) for key in ("name", "state", "node", "why")}),
            min_size=1,
            max_size=4,
        ),
        width=integers(1, 200) | none(),
    )
    def test_lossless(self, rows: list[dict[str, object]], width: int | None) -> None:
        """Whatever the width, every character of every cell is there, and no line is wider."""
        columns = {"name": "PEER", "state": "STATE", "node": "NODE", "why": "WHY"}
        output = shown(rows, columns, width, ["why"])
        for row in rows:
            for key in columns:
                wanted = Counter("".join(cell(row[key]).split()))
                if cell(row[key]) != "-":
                    self.assertLessEqual(wanted, Counter("".join(output.split())))
        if width is not None and width >= 2:
            self.assertEqual([line for line in output.splitlines() if display_width(line) > width], [])

    def test_lists(self) -> None:
        """A list without spaces is broken after a comma, where it can be, and a long word where it must be."""
        self.assertEqual(fold("Accepted,degraded", 14), ["Accepted,", "degraded"])
        self.assertEqual(fold("a,b,c, d", 4), ["a,b,", "c, d"])
        self.assertEqual(fold("abcdef", 4), ["abcd", "ef"])

    def test_order(self) -> None:
        """A cell that is folded can still be read: its parts are in order, below one another."""
        columns = {"name": "PEER", "why": "WHY"}
        for width in (60, 30, 12):
            output = shown([{"name": "milan", "why": "one two three four five six seven"}], columns, width)
            places = [output.index(word) for word in ["one", "two", "three", "four", "five", "six", "seven"]]
            self.assertEqual(places, sorted(places), width)

    def test_pipe(self) -> None:
        """Without a terminal a row is a line, however long."""
        row: dict[str, object] = dict.fromkeys(STATUS_WIDE, "x" * 300)
        self.assertEqual(len(shown([row], STATUS_WIDE).splitlines()), 2)

    def test_one_long_cell_in_a_pipe(self) -> None:
        """It moves the rest of its own row, and fills no other one up with spaces."""
        rows: list[dict[str, object]] = [
            {"a": "short", "b": "x" * 400, "c": "end"},
            {"a": "next", "b": "y", "c": "end"},
        ]
        lines = shown(rows, {"a": "A", "b": "B", "c": "C"}).splitlines()
        self.assertEqual(lines[1], f"short  {'x' * 400}  end")
        self.assertEqual(lines[2].split(), ["next", "y", "end"])
        self.assertLess(len(lines[2]), 80)


class OutputTests(SynchronousTestCase):
    def test_hostile(self) -> None:
        """What a peer calls itself can neither control the terminal nor use markup."""
        output = shown([{"name": "\x1b[2Jrome[red]x[/]", "phase": "Ready"}], {"name": "PEER", "phase": "STATE"})
        self.assertNotIn("\x1b", output)
        self.assertIn("[red]x[/]", output)

    def test_cells(self) -> None:
        """Lists, tables, flags and nothing have their own texts."""
        self.assertEqual(cell(["a", "b"]), "a, b")
        self.assertEqual(cell({"b": 1, "a": 2}), "a 2, b 1")
        self.assertEqual((cell(True), cell(False), cell(None), cell("")), ("yes", "no", "-", "-"))
        self.assertEqual(cell("[red]x[/]"), "[red]x[/]")

    def test_formats(self) -> None:
        """JSON and YAML carry the same values."""
        value = [{"name": "rome", "pods": 3, "why": "naïve"}]
        self.assertEqual(json.loads(as_text(value, "json")), value)
        self.assertEqual(yaml.safe_load(as_text(value, "yaml")), value)
        self.assertEqual(list(yaml.safe_load_all(as_documents([{"a": 1}, {"b": 2}]))), [{"a": 1}, {"b": 2}])

    def test_formats_on_a_terminal(self) -> None:
        """No text in JSON or YAML makes a terminal do anything, nor turns what follows around; nothing is lost."""
        value = {"why": "a\x9b31m\u202ee\u2066 \x7f\x1b[2J\r \u0085 naïve"}
        forms: tuple[Format, ...] = ("json", "yaml")
        for form in forms:
            printed = as_text(value, form)
            self.assertTrue(printed.replace("\n", "").isprintable(), ascii(printed))
            self.assertEqual(yaml.safe_load(printed), value, form)
        self.assertIn("naïve", as_text({"why": "naïve"}, "json"))

    def test_records_in_any_locale(self) -> None:
        """Records are ASCII: what a locale lacks would else be applied as a question mark."""
        forms: tuple[Format, ...] = ("json", "yaml")
        for form in forms:
            printed = _documents(Options(output=form), [{"name": "naïve"}])
            self.assertTrue(printed.isascii(), printed)
            self.assertIn("naïve", str(yaml.safe_load(printed)))

    def test_age(self) -> None:
        """Durations are cut to one unit."""
        self.assertEqual(
            [age(value) for value in (-1, 5, 119, 120, 7200, 172800)], ["0s", "5s", "119s", "2m", "2h", "2d"]
        )

    def test_findings(self) -> None:
        """Findings are grouped with their marks and counted; only bad ones fail."""
        found = [good("API", "answers"), bad("Ports", "taken", "free it"), warning("API", "slow", "wait")]
        self.assertEqual(
            [line for line, _ in lines(found)],
            [
                "API",
                "  ✓ answers",
                "  ! slow",
                "      wait",
                "Ports",
                "  ✗ taken",
                "      free it",
                "1 passed, 1 warning, 1 failed",
            ],
        )
        self.assertTrue(failed(found))
        self.assertFalse(failed([found[0], found[2]]))


class WidthTests(SynchronousTestCase):
    """How wide a stream is."""

    def test_columns(self) -> None:
        """$COLUMNS counts on a terminal, where it is a positive number; what is no terminal has no width."""
        screen = io.StringIO()
        self.assertIsNone(terminal.width(screen))
        screen.isatty = lambda: True  # type: ignore[method-assign]
        default = terminal.DEFAULT_WIDTH
        for columns, width in (("120", 120), ("99999", 10000), *((odd, default) for odd in ("0", "-1", "x", "", "²"))):
            self.patch(os, "environ", {"COLUMNS": columns})
            self.assertEqual(terminal.width(screen), width, columns)
