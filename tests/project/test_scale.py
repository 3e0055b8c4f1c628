"""How growth is fitted, what is kept of a sweep, what a model of many clusters says, and what misses a goal."""

from __future__ import annotations

import json
import math
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from attrs import asdict, evolve
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from benchmarks.figures import goals
from benchmarks.figures.report import keep
from benchmarks.scale import clusters, fit, graphs, model, sweep
from benchmarks.scale.exposition import connections, series, total
from benchmarks.scale.kinds import KINDS, counted
from benchmarks.scale.model import Reading, Sample
from benchmarks.scale.points import FIGURES, PLACES, Place, Point, Store, exponent, rendered, replaced
from benchmarks.scale.stage import LARGEST_REAL, Spending
from liqod.config.schema import PeeringSettings
from liqod.flow.connections.admission import HANDSHAKES, HANDSHAKES_BURST
from tests.project.test_architecture import CHECKOUT

SIZES = (100.0, 300.0, 1000.0, 3000.0, 10000.0)


class FitTests(SynchronousTestCase):
    """Powers and lines through points."""

    @given(st.floats(0.001, 1000), st.floats(-1, 3))
    def test_a_power_is_found_again(self, factor: float, power: float) -> None:
        """Points that are on a power give its factor and its exponent, and none of them is off."""
        found = fit.power([(size, factor * size**power) for size in SIZES])
        assert found is not None
        self.assertAlmostEqual(found.exponent, power, 6)
        self.assertAlmostEqual(found.factor / factor, 1.0, 5)
        self.assertAlmostEqual(found.off, 1.0, 5)

    @given(st.floats(-100, 100), st.floats(-10, 10))
    def test_a_line_is_found_again(self, offset: float, slope: float) -> None:
        """So do points on a line."""
        found = fit.line([(size, offset + slope * size) for size in SIZES])
        assert found is not None
        self.assertAlmostEqual(found.slope, slope, 6)
        self.assertAlmostEqual(found.at(500.0), offset + slope * 500.0, 3)

    def test_shapes(self) -> None:
        """A figure stays, grows by less than the size, with it, or by more."""
        for power, shape in ((0.1, "stays"), (0.5, "less than linear"), (1.1, "linear"), (1.5, "more than linear")):
            found = fit.power([(size, size**power) for size in SIZES])
            assert found is not None
            self.assertEqual(found.shape, shape)
        self.assertEqual(fit.Power(1.0, 2.0, 1.0).shape, "square or more")
        self.assertEqual(fit.Power(1.0, -1.0, 1.0).shape, "falls")

    def test_the_worst_point(self) -> None:
        """A point that is twice too high among many is named by how far it is off."""
        found = fit.power([(size, size * (2.0 if size == 1000.0 else 1.0)) for size in SIZES])
        assert found is not None
        self.assertTrue(1.4 < found.off < 2.0, found.off)

    def test_too_little(self) -> None:
        """One size, nothing at all, or nothing above zero is no curve."""
        for points in ([], [(1.0, 2.0)], [(1.0, 2.0), (1.0, 3.0)], [(1.0, 0.0), (2.0, 0.0), (3.0, 1.0)]):
            self.assertIsNone(fit.power(points))


class ExpositionTests(SynchronousTestCase):
    """What is read of a daemon."""

    TEXT = """\
# TYPE liqod_api_requests_total counter
liqod_api_requests_total{cluster="home",verb="get",resource="pods"} 3.0
liqod_api_requests_total{cluster="home",verb="watch",resource="pods"} 5.0
liqod_api_requests_total{cluster="milan",verb="create",resource="secrets"} 1e+02
liqod_leading 1.0
"""

    def test_series(self) -> None:
        """Series of a name come with their labels; sums are of those that are selected."""
        name = "liqod_api_requests_total"
        self.assertEqual(len(list(series(self.TEXT, name))), 3)
        self.assertEqual(list(series(self.TEXT, "liqod_leading")), [({}, 1.0)])
        self.assertEqual(total(self.TEXT, name), 108.0)
        self.assertEqual(total(self.TEXT, name, without=("watch",)), 103.0)
        self.assertEqual(total(self.TEXT, name, cluster="home"), 8.0)
        self.assertEqual(total(self.TEXT, "liqod"), 0.0)

    def test_connections(self) -> None:
        """Established ones of the known sockets to the ports count, others do not."""
        head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        line = "   {}: 0100007F:8000 0100007F:{:04X} {} 00000000:00000000 00:00000000 00000000     0        0 {} 1\n"
        rows = [(6443, "01", 11), (6443, "01", 12), (6443, "06", 11), (5872, "01", 11), (6443, "01", 99)]
        table = head + "".join(line.format(number, *row) for number, row in enumerate(rows))
        self.assertEqual(connections(table, ["11", "12"], [6443]), 2)
        self.assertEqual(connections(head, ["11"], [6443]), 0)


class PointsTests(SynchronousTestCase):
    """What is kept of a sweep."""

    def point(self, size: int, place: Place = "real", **figures: float) -> Point:
        return Point(kind="pods", size=size, place=place, figures=figures, commit="a")

    def store(self) -> Store:
        return Store("pods", Path(self.mktemp()) / "sweep-pods.json", "a")

    def test_resumed(self) -> None:
        """What is in the file is not missing; at another place it is."""
        store = self.store()
        self.assertEqual(store.missing([300, 100], "real"), [100, 300])
        store.add(self.point(100, seconds=1.0))
        store.add(self.point(100, "sandbox", seconds=2.0))
        self.assertEqual(store.missing([300, 100], "real"), [300])
        self.assertEqual(store.missing([300, 100], "sandbox"), [300])

    def test_another_commit(self) -> None:
        """A curve is of one version: what another one took is neither in it nor lost."""
        store = self.store()
        store.add(self.point(100, seconds=1.0))
        later = Store("pods", store.file, "b")
        self.assertEqual((later.points(), later.missing([100], "real")), ([], [100]))
        later.add(Point(kind="pods", size=100, place="real", figures={"seconds": 5.0}, commit="b"))
        self.assertEqual([one.figures["seconds"] for one in later.points()], [5.0])
        self.assertEqual([one.figures["seconds"] for one in store.points()], [1.0])
        self.assertIn("at commit b.", rendered(later.points(), "pods"))

    def test_replaced(self) -> None:
        """A point that is measured again takes the place of the former one; each says what it is of."""
        store = self.store()
        for seconds in (1.0, 2.0):
            store.add(self.point(100, seconds=seconds))
        self.assertEqual([one.figures["seconds"] for one in store.points()], [2.0])
        self.assertEqual(set(json.loads(store.file.read_text())), {"machine", "kind", "points"})

    def test_table(self) -> None:
        """Each place has rows of its own and an exponent of its own; what was not measured is a dash."""
        points = [self.point(size, place, seconds=size**2.0) for place in PLACES for size in (10, 100)]
        text = rendered(points, "pods")
        self.assertEqual(text.count("\n| exponent |"), 2)
        self.assertIn("2.00 (x1.00)", text)
        self.assertEqual(exponent(points, "MiB, borrower"), "-")
        grown = [self.point(size, mib=max(0.0, size - 100.0)) for size in (100, 200, 300)]
        self.assertIn(", 2 of 3 sizes)", exponent(grown, "mib"))
        self.assertEqual(rendered([], "pods"), "Not measured yet.")

    def test_a_page(self) -> None:
        """The text between the marks of a name is replaced, and nothing else; without marks that is an error."""
        page = "a\n<!-- begin of x -->\nold\n<!-- end of x -->\nb\n"
        self.assertEqual(replaced(page, "x", "new"), page.replace("old", "new"))
        self.assertEqual(replaced(replaced(page, "x", "new"), "x", "old"), page)
        self.assertRaises(LookupError, replaced, page, "y", "new")

    def test_marks(self) -> None:
        """docs/scale.md has the marks of every table that is written to it, each once."""
        page = (CHECKOUT / "docs/scale.md").read_text()
        names = [f"sweep {kind}" for kind in ("pods", "peers", "services", "secrets")]
        for name in [*names, *(f"clusters {what}" for what in ("measured", "checked", "forecast")), "takeover"]:
            self.assertEqual(page.count(f"<!-- begin of {name} -->\n"), 1, name)
            replaced(page, name, "")


class GraphTests(SynchronousTestCase):
    """Who peers with whom."""

    @given(st.sampled_from(sorted(graphs.SHAPES)), st.integers(2, 60), st.integers(0, 1000))
    def test_connected(self, shape: str, count: int, seed: int) -> None:
        """Every cluster reaches every other, pairs are of two, lower number first, and the same seed gives the same."""
        graph = graphs.SHAPES[shape](count, Random(seed))
        self.assertEqual(graph, graphs.SHAPES[shape](count, Random(seed)))
        self.assertTrue(all(1 <= one < two <= count for one, two in graph))
        reached, before = {1}, set[int]()
        while reached != before:
            before = set(reached)
            reached |= {there for edge in graph if reached & set(edge) for there in edge}
        self.assertEqual(len(reached), count)
        self.assertEqual(sum(graphs.degrees(count, graph)), 2 * len(graph))

    def test_degrees(self) -> None:
        """In a ring all have two peers, in a star one has all, by chance they have six on average."""
        chance = Random(1)
        self.assertEqual(set(graphs.degrees(10, graphs.ring(10))), {2})
        self.assertEqual(graphs.degrees(10, graphs.star(10)), [9, *[1] * 9])
        self.assertEqual(len(graphs.scattered(100, chance)), 300)
        self.assertEqual(len(graphs.scattered(4, chance)), 6)

    def test_severed(self) -> None:
        """A partition cuts a ring at two places."""
        self.assertEqual(graphs.severed(10, graphs.ring(10)), frozenset({(5, 6), (1, 10)}))


def reading(shape: str, clusters: int, *, extra: float = 0.0) -> Reading:
    """Return a reading of clusters that do what each does by its peers, and ``extra`` for each other cluster."""
    graph = graphs.SHAPES[shape](clusters, Random(1))
    peers = graphs.degrees(clusters, graph)
    return Reading(
        shape=shape,
        clusters=clusters,
        sessions=len(graph),
        most=max(peers),
        agreed=2.0 + 0.1 * max(peers),
        churned=1.0,
        healed=1.0,
        cut=0,
        lost=0,
        mib=5.0 + 0.5 * 2 * len(graph) / clusters,
        samples=[Sample(one, 0.2 * one, 1.0 + 0.3 * one + extra * clusters) for one in peers],
    )


class ModelTests(SynchronousTestCase):
    """What many clusters take."""

    def setUp(self) -> None:
        self.fitted = model.fitted([reading(shape, count) for shape in graphs.SHAPES for count in (10, 25, 50)])

    def forecast(self, shape: str, clusters: int) -> model.Forecast:
        return model.forecast(self.fitted, clusters, graphs.SHAPES[shape](clusters, Random(1)))

    def test_more_of_the_same(self) -> None:
        """Where a daemon does what its peers make it do, the model says what a hundred clusters take."""
        for shape in graphs.SHAPES:
            found = model.deviation(self.forecast(shape, 100), reading(shape, 100))
            for name, times in found.items():
                self.assertAlmostEqual(times, 1.0, 5, f"{shape} {name}")

    def test_work_that_grows_with_the_number_of_clusters(self) -> None:
        """Where each daemon does something for every cluster there is, the hundred are not what the model says."""
        others = [reading(shape, count, extra=0.1) for shape in graphs.SHAPES for count in (10, 25, 50)]
        said = model.forecast(model.fitted(others), 100, graphs.ring(100))
        self.assertGreater(model.deviation(said, reading("ring", 100, extra=0.1))["requests"], 1.5)

    def test_a_thousand(self) -> None:
        """In a ring the whole grows with the clusters, a daemon not at all; in a star one daemon has it all."""
        small, large = self.forecast("ring", 100), self.forecast("ring", 1000)
        self.assertAlmostEqual(large.events / small.events, 10.0, 5)
        self.assertEqual((large.busiest_mib, large.seconds), (small.busiest_mib, small.seconds))
        star = self.forecast("star", 1000)
        self.assertGreater(star.busiest_mib, 700.0)
        self.assertEqual((large.admission, small.longest), (0.0, small.seconds + small.cpu_seconds))
        self.assertAlmostEqual(star.admission, (999 - HANDSHAKES_BURST) / HANDSHAKES)
        self.assertEqual(star.obstacle, "`max-sessions` 999 or more")
        self.assertIn("4096 at most", self.forecast("star", 10000).obstacle)
        self.assertEqual(large.obstacle, "")

    def test_another_commit(self) -> None:
        """Readings of another version are kept, and the model knows nothing of them."""
        old, new = (evolve(reading("ring", 10), commit=commit) for commit in ("a", "b"))
        found = clusters.added(clusters.added(clusters.added([], old), new), new)
        self.assertEqual(found, [old, new])
        self.assertEqual(clusters.of_commit(found, "b"), [new])
        self.assertIn("at commit b.", clusters.texts([new], [1000], ["ring"])["clusters measured"])

    def test_kept(self) -> None:
        """A reading is read again as it was written."""
        one = evolve(reading("star", 10), commit="a")
        file = Path(self.mktemp())
        keep(file, {"readings": [asdict(one)]})
        self.assertEqual(clusters.known(file), [one])
        self.assertEqual(clusters.known(file.with_name("none")), [])

    def test_nothing(self) -> None:
        """Without readings there is no model; with graphs of one kind the unknown part is level."""
        self.assertRaises(ValueError, model.fitted, [])
        level = model.fitted([reading("ring", 10)])
        self.assertEqual(level.events.slope, 0.0)

    def test_a_figure_that_the_model_denies(self) -> None:
        """What was measured where the model says nothing is infinitely more."""
        said = model.forecast(model.Model(*[fit.Line(0.0, 0.0)] * 4), 10, graphs.ring(10))
        self.assertEqual(set(model.deviation(said, reading("ring", 10)).values()), {math.inf})

    def test_limits(self) -> None:
        """The bounds of sessions are those of the settings."""
        self.assertEqual(model.DEFAULT_SESSIONS, PeeringSettings().max_sessions)
        self.assertEqual((model.HANDSHAKES, model.HANDSHAKES_BURST), (HANDSHAKES, HANDSHAKES_BURST))
        schema = (CHECKOUT / "liqod/config/schema.py").read_text()
        self.assertIn(f"max_sessions: Annotated[int, Meta(ge=1, le={model.MOST_SESSIONS})]", schema)


class GoalTests(SynchronousTestCase):
    """What misses a goal."""

    def runs(self, *offloaded: float, floor: float | None = 10.0) -> list[dict[str, Any]]:
        """Return repetitions, each on a machine that takes a tenth more than in the one before."""
        found: list[dict[str, Any]] = []
        for number, seconds in enumerate(offloaded):
            hour = 1.0 + number / 10
            for where, value in (("local", 5.0), ("offloaded", seconds), ("floor", floor)):
                if value is not None:
                    figures = {"seconds": value * hour, "CPU ms/pod": value * hour}
                    found.append({"qps": 500, "pods": 1000, "where": where, **figures})
        return found

    def one(self, *offloaded: float, floor: float | None = 10.0) -> goals.Summary:
        return goals.summaries(self.runs(*offloaded, floor=floor))[0]

    def test_ratios(self) -> None:
        """They are of the same repetition, so that an hour that was slower changes none."""
        found = self.one(11.0, 11.0, 11.0)
        self.assertAlmostEqual(found.ratio("floor") or 0.0, 1.1)
        self.assertAlmostEqual(found.ratio("local") or 0.0, 2.2)
        self.assertEqual(found.missed, [])

    def test_missed(self) -> None:
        """More than 1.15 times the floor, or 2.6 times the local pods, is a goal missed; exactly that much is none."""
        for seconds, missed in (
            (11.0, []),
            (12.0, ["1.15 times the floor"]),
            (13.5, ["1.15 times the floor", "2.6 times local"]),
        ):
            self.assertEqual(self.one(*[seconds] * 3).missed, missed, f"{seconds}")
        self.assertEqual(self.one(13.0, floor=None).missed, [])

    def test_one_slow_repetition(self) -> None:
        """The median decides."""
        self.assertEqual(self.one(11.0, 30.0, 11.0).missed, [])

    def test_a_floor_in_some(self) -> None:
        """A repetition without one has no part in the ratio, and moves none of the others."""
        found = goals.summaries([*self.runs(11.0, floor=None), *self.runs(30.0)])[0]
        self.assertEqual(found.values("floor"), [10.0])
        self.assertAlmostEqual(found.ratio("floor") or 0.0, 3.0)
        self.assertAlmostEqual(found.ratio("local") or 0.0, 4.1)

    def test_without_a_floor(self) -> None:
        """What was not measured is a dash, and misses nothing."""
        found = self.one(12.0, 12.0, 12.0, floor=None)
        self.assertIsNone(found.ratio("floor"))
        self.assertEqual(found.missed, [])

    def test_text(self) -> None:
        """The table marks what is missed, with the spread where enough repetitions are there; else it says so."""
        text = goals.rendered(goals.summaries(self.runs(14.0, 14.0, 14.0)))
        self.assertIn("2 of 2 figures miss a goal", text)
        self.assertIn("±", text)
        few = goals.rendered(goals.summaries(self.runs(11.0)))
        self.assertIn("no spread is known", few)
        self.assertNotIn("±", few)


class SweepTests(SynchronousTestCase):
    """What is measured where, and what counts as there."""

    def test_places(self) -> None:
        """Sizes that fit are measured on real control planes, larger ones on sandbox servers with some that fit."""
        self.assertEqual(sweep.places("pods", [300, 100], "auto"), [("real", [100, 300])])
        self.assertEqual(
            sweep.places("services", [50, 150, 500, 1500, 5000], "auto"),
            [("real", [50, 150, 500, 1500]), ("sandbox", [150, 500, 1500, 5000])],
        )
        self.assertEqual(sweep.places("peers", [2, 100], "sandbox"), [("sandbox", [2, 100])])
        self.assertEqual(sweep.places("peers", [2, 100], "real"), [("real", [2, 100])])

    def test_kinds(self) -> None:
        """Each kind has a largest real size, and its usual sizes go as far as they are to."""
        self.assertEqual(set(KINDS), set(LARGEST_REAL))
        most = {name: max(kind.sizes) for name, kind in KINDS.items()}
        self.assertEqual(most, {"pods": 10000, "peers": 100, "services": 5000, "secrets": 5000})

    def test_counted(self) -> None:
        """Objects are counted by reading one of them."""
        asked: list[str] = []

        def get(path: str) -> bytes:
            asked.append(path)
            return b'{"metadata": {"remainingItemCount": 41}, "items": [{}]}'

        caller: Any = SimpleNamespace(get=get)
        self.assertEqual(counted(caller, "/api/v1/secrets"), 42)
        self.assertEqual(asked, ["/api/v1/secrets?limit=1"])
        empty: Any = SimpleNamespace(get=lambda path: b'{"metadata": {}, "items": []}')
        self.assertEqual(counted(empty, "/api/v1/secrets"), 0)

    def test_what_was_added(self) -> None:
        """Figures are what was spent between two readings, under the names that the table has."""
        before = Spending((10.0, 1.0), (1.0, 0.5), (90.0, 80.0), 20)
        after = Spending((30.0, 4.0), (3.0, 1.0), (100.0, 85.0), 25)
        found = after.since(before)
        self.assertEqual(set(found) | {"seconds"}, set(FIGURES))
        self.assertEqual((found["requests, borrower"], found["CPU s, lenders"]), (20.0, 0.5))
        self.assertEqual((found["MiB, borrower"], found["watches, borrower"]), (10.0, 5.0))
