"""What the benchmark of sizes counts, and how it takes an image apart."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.__main__ import names
from benchmarks.daemon.footprint import FIGURES, FORMS, SIZES, installed, rows, unpack
from benchmarks.daemon.footprint_pods import COMPONENT, NAMESPACE, PROCESSES, VALUES
from benchmarks.figures.measure import memory
from liqod.cli.setup.up.chart.render import Release, render

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "packaging/tools"))

from layers import Layer, archive  # noqa: E402 (the tools are scripts beside each other)

STATUS = "Name:\ttwistd\nVmHWM:\t  99999 kB\nVmRSS:\t   51200 kB\n"
ROLLUP = "Rss: 51200 kB\nPss: 40000 kB\nPrivate_Clean:      1024 kB\nPrivate_Dirty:     30720 kB\nSwap: 0 kB\n"


class FootprintTests(SynchronousTestCase):
    """Sizes and memory."""

    def setUp(self) -> None:
        self.place = Path(self.mktemp()).absolute()

    def test_is_a_benchmark(self) -> None:
        """``python -m benchmarks footprint`` runs it, and it has the three forms."""
        self.assertIn("footprint", names())
        self.assertEqual(set(FORMS), {"host", "package", "image"})

    def test_installed(self) -> None:
        """Files count with their bytes, links as files without any, also those to directories; directories do not."""
        (self.place / "a/b").mkdir(parents=True)
        (self.place / "a/b/file").write_bytes(b"12345")
        (self.place / "link").symlink_to("a/b/file")
        (self.place / "folder").symlink_to("a")
        self.assertEqual(installed(self.place), (5, 3))

    def test_unpack(self) -> None:
        """An image's layers are laid over each other, the upper one on top, with modes and links."""
        lower, upper = Layer(1_700_000_000), Layer(1_700_000_000)
        lower.add("etc/name", b"lower")
        lower.add("opt/only", b"lower", 0o755)
        upper.add("etc/name", b"upper")
        upper.add_link("bin", "usr/bin")
        self.place.mkdir()
        packed = self.place / "liqod.oci.tar"
        packed.write_bytes(archive([lower, upper], "amd64", {}, "liqod:test", 1_700_000_000))
        root = self.place / "root"
        unpack(packed, root)
        self.assertEqual(((root / "etc/name").read_text(), (root / "opt/only").read_text()), ("upper", "lower"))
        self.assertEqual((root / "opt/only").stat().st_mode & 0o777, 0o755)
        self.assertEqual(str((root / "bin").readlink()), "usr/bin")

    def test_memory(self) -> None:
        """What is in memory now, not the most there was; and what of it is nobody else's."""
        self.assertEqual(memory(STATUS, ROLLUP), (50.0, 31.0))
        self.assertEqual(memory("", ""), (0.0, 0.0))

    def test_rows(self) -> None:
        """A row has the median of each figure; a process without sizes is in the table of processes alone."""
        figures = {what: [3.0, 1.0, 2.0] for what in FIGURES}
        found = {"host": {**figures, **{what: [5.0] for what in SIZES}}, "pod": figures}
        two = [2.0] * len(FIGURES)
        self.assertEqual(rows(found, FIGURES), [["host", *two], ["pod", *two]])
        self.assertEqual(rows(found, SIZES), [["host", *[5.0] * len(SIZES)]])

    def test_pods(self) -> None:
        """The chart has each component that is measured, by the values that the benchmark sets."""
        values: dict[str, Any] = {}
        for key, text in VALUES.items():
            *above, last = key.split(".")
            place = values
            for one in above:
                place = place.setdefault(one, {})
            place[last] = {"true": True, "1": 1}.get(text, text)
        made = [
            one["spec"]["template"] for one in render(values, Release(NAMESPACE)) if "template" in one.get("spec", {})
        ]
        self.assertLessEqual(PROCESSES.keys(), {one["metadata"]["labels"][COMPONENT] for one in made})
