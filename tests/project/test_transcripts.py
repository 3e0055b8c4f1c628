"""Two transcripts of the same steps are the same, whatever the clock, chance and lengths of names were."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.real.test_first_minutes import DOCUMENT, key_of
from tests.real.transcripts import BEGIN, Names, Step, columns, is_row, normalized, page, settled

ID = "5e0d3c1a-8a6f-4c0e-9a67-2f1c5d7b9e01"
PODS = """\
NAME                   READY   STATUS    RESTARTS   AGE   IP          NODE
web-5d9c7b8f6d-x2x9z   1/1     Running   0          7s    10.64.0.9   liqo-milan
web-5d9c7b8f6d-bq7kp   1/1     Running   0          7s    10.64.0.8   liqo-milan"""
LATER = """\
NAME                   READY   STATUS    RESTARTS      AGE    IP            NODE
web-68c4f8b9d4-zzpvw   1/1     Running   0             103s   10.64.0.112   liqo-milan
web-68c4f8b9d4-4xkfd   1/1     Running   0             103s   10.64.0.111   liqo-milan"""
WANTED = """\
NAME                   READY   STATUS    RESTARTS   AGE   IP          NODE
web-bbbbbbbbbb-bbbbb   1/1     Running   0          1m    10.64.0.2   liqo-milan
web-bbbbbbbbbb-ccccc   1/1     Running   0          1m    10.64.0.3   liqo-milan"""


class NamesTests(SynchronousTestCase):
    """What is replaced."""

    def test_same(self) -> None:
        """Two runs of the same command are the same text, with columns that fit."""
        self.assertEqual(normalized(PODS, Names()), WANTED)
        self.assertEqual(normalized(LATER, Names()), WANTED)

    def test_one_thing_one_name(self) -> None:
        """The same pod has the same name wherever it is named, and another one another."""
        names = Names()
        first = normalized(PODS, names).split("\n")[1].split()[0]
        self.assertEqual(names("pod web-5d9c7b8f6d-x2x9z runs"), f"pod {first} runs")
        self.assertNotIn(first, names("pod web-5d9c7b8f6d-bq7kp runs"))

    def test_clocks(self) -> None:
        """Dates and lengths of time say nothing any more; ports, versions and sizes stay."""
        text = "since 2026-11-27T00:34:20Z, 12 s, 0.7 ms, 3s; port 5872/tcp, v1.36.1, cpu 1, mem 1Gi"
        wanted = "since 2026-01-01T12:00:00Z, … s, … ms, … s; port 5872/tcp, v1.36.1, cpu 1, mem 1Gi"
        self.assertEqual(Names()(text), wanted)

    def test_kept(self) -> None:
        """IDs and addresses that are the same in every run stay; others do not, and files have a short place."""
        names = Names([ID, "10.99.0.11"], {"/tmp/x/c1/liqod-one": "~", "/tmp/x": "/tmp/clusters"})
        text = f"namespace shop-{ID} at 10.99.0.11:5872, 0f1e2d3c-0000-4000-8000-aabbccddeeff, /tmp/x/c1/liqod-one/k"
        wanted = f"namespace shop-{ID} at 10.99.0.11:5872, 00000000-0000-4000-8000-000000000000, ~/k"
        self.assertEqual(names(text), wanted)
        self.assertEqual(names("10.201.0.0/16"), "10.201.0.0/16")


class TableTests(SynchronousTestCase):
    """What is laid out again."""

    def test_rows(self) -> None:
        """A line beneath a row, an empty one and the next heading are no rows."""
        starts = columns("PEER   STATE  NODE")
        self.assertEqual(starts, [0, 7, 14])
        lines = ("milan  Ready  liqo-milan", "    why: something", "", "daemon rome-1", "NAME   STATUS")
        self.assertEqual([is_row(line, starts) for line in lines], [True, False, False, False, False])

    def test_two_spaces(self) -> None:
        """A table whose columns stand two spaces apart stays one; headings of two words stay together."""
        text = "PEER   FOUND BY  PODS\nmilan  mdns      2\n\nnothing is wrong"
        self.assertEqual(normalized(text, Names()), text)

    def test_beneath(self) -> None:
        """Lines beneath a row stay there, and the rows after them are in the columns of those before."""
        text = "WHAT                 STATE\npod                  Running\n    a reason\nlabels and affinity  set"
        self.assertEqual(normalized(text, Names()), text)


class PageTests(SynchronousTestCase):
    """The page."""

    def test_page(self) -> None:
        """What was there is replaced, the beginning stays, and no line is longer than a terminal and its indent."""
        steps = [Step("rome", "kubectl logs web-5d9c7b8f6d-x2x9z", "x" * 100, "A word:"), Step("milan", "true", "")]
        made = page(f"# Head\n\nText.\n\n{BEGIN}\n\nold\n", steps, Names())
        self.assertEqual(
            made,
            f"# Head\n\nText.\n\n{BEGIN}\n\nA word:\n\n    rome$ kubectl logs web-bbbbbbbbbb-bbbbb\n    {'x' * 80}\n"
            f"    {'x' * 20}\n\n    milan$ true\n",
        )
        self.assertEqual(page(made, steps, Names()), made)

    def test_scrolled(self) -> None:
        """Of what is longer than a terminal it is said how much has scrolled away."""
        for count, said in ((23, ""), (24, "These are 24 lines: the first 1 scrolled off the screen.\n")):
            made = page(f"{BEGIN}\n", [Step("rome", "true", "\n".join(["x"] * count))], Names())
            self.assertEqual(made.partition("    x\n\n")[2], said)

    def test_start(self) -> None:
        """Of what a daemon says while it starts the last line stays, and no token does."""
        text = "service: enable\nready: wait\n  starting\n  standing by\n  leading\nliqod is set up\nliqo1.ab-c_D"
        wanted = "service: enable\nready: wait\n  leading\nliqod is set up\nliqo1.…"
        self.assertEqual(Names()(settled(text)), wanted)

    def test_place(self) -> None:
        """The page in docs has the mark below which it is written."""
        self.assertIn(BEGIN, DOCUMENT.read_text())

    def test_keys(self) -> None:
        """The keys of both clusters are the same in every run, and not the same key."""
        prints = [key_of(name).fingerprint for name in ("rome", "milan", "rome")]
        self.assertEqual(prints[0], prints[2])
        self.assertNotEqual(prints[0], prints[1])
