"""Every decoder of strangers' bytes: the whole corpus, and what hypothesis makes of it."""

from __future__ import annotations

import time
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.fuzz import cost
from tests.fuzz.mutate import grown, mutated
from tests.fuzz.seeds import CORPUS
from tests.fuzz.sizes import SIZES, SMALLEST, largest
from tests.fuzz.targets.every import TARGETS

CONTENTS = {name: sorted(path.read_bytes() for path in (CORPUS / name).iterdir()) for name in TARGETS}
OF_JSON = sorted(name for name in TARGETS if any(mutated(one, Random(0)) for one in CONTENTS[name]))
EDITS = st.lists(
    st.tuples(st.sampled_from(("set", "cut", "drop", "put", "twice")), st.integers(0, 2**16), st.binary(max_size=9))
)


def edited(content: bytes, edits: list[tuple[str, int, bytes]]) -> bytes:
    """Return a content with some edits: bytes replaced, the end cut off, bytes left out, put in, or said twice."""
    for what, where, new in edits:
        at = where % (len(content) + 1)
        match what:
            case "set":
                content = content[:at] + new + content[at + len(new) :]
            case "cut":
                content = content[:at]
            case "drop":
                content = content[:at] + content[at + 1 + len(new) :]
            case "put":
                content = content[:at] + new + content[at:]
            case _:
                content = (content + content[at:])[:4096]
    return content


class TargetsTests(SynchronousTestCase):
    """Only what a decoder may raise comes out of it; the targets themselves say what that is."""

    def test_each_has_a_corpus(self) -> None:
        """No target begins with nothing, and no folder is nobody's."""
        self.assertEqual({folder.name for folder in CORPUS.iterdir()}, set(TARGETS))
        for name, contents in CONTENTS.items():
            self.assertGreater(len(contents), 1, name)

    def test_what_the_corpus_costs(self) -> None:
        """No content takes more calls or memory than a stranger may have us spend."""
        for name, contents in CONTENTS.items():
            for content in contents:
                cost.counted(TARGETS[name])(content)
                cost.check_memory(TARGETS[name], content)

    def test_the_corpus_and_every_cut_of_it(self) -> None:
        """Each content, and each of its beginnings: truncation at every byte."""
        for name, contents in CONTENTS.items():
            for content in contents:
                for end in range(len(content) + 1):
                    TARGETS[name](content[:end])

    @settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.data())
    def test_any_edit(self, data: st.DataObject) -> None:
        """Contents of the corpus, changed in up to a handful of places."""
        name = data.draw(st.sampled_from(sorted(TARGETS)))
        content = edited(data.draw(st.sampled_from(CONTENTS[name])), data.draw(EDITS))
        cost.counted(TARGETS[name])(content)

    @settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.data(), st.randoms(use_true_random=False))
    def test_any_json(self, data: st.DataObject, random: Random) -> None:
        """What is JSON, with other fields and values than its parser expects."""
        name = data.draw(st.sampled_from(OF_JSON))
        content = mutated(data.draw(st.sampled_from(CONTENTS[name])), random)
        cost.counted(TARGETS[name])(content or b"")

    @settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.sampled_from(sorted(TARGETS)), st.binary(max_size=600))
    def test_any_bytes(self, name: str, content: bytes) -> None:
        """Contents out of nothing."""
        TARGETS[name](content)


class SizesTests(SynchronousTestCase):
    """How large inputs become."""

    def test_what_is_accepted(self) -> None:
        """Each input may be as large as its decoder accepts it, and one byte more."""
        self.assertEqual(SIZES.keys() - TARGETS.keys(), set())
        for name, most in (
            ("watch-line", 8 << 20),
            ("review", 2 << 20),
            ("stream", 1 << 20),
            ("shadow-pod", 3 << 19),
            ("offer", 256 << 10),
            ("head", 64 << 10),
            ("certificate", 20 << 10),
        ):
            self.assertEqual(largest(name), most + 1, name)
        self.assertEqual(largest("token"), SMALLEST)
        for name, contents in CONTENTS.items():
            self.assertLessEqual(max(map(len, contents)), largest(name), name)

    def test_grown(self) -> None:
        """An input becomes about as long as it is to be, of the same beginning; what was JSON is JSON."""
        size = 64 << 10
        for name, contents in CONTENTS.items():
            for seed, content in enumerate(contents):
                made = grown(content, Random(seed), size)
                self.assertGreater(len(made), size // 2, (name, seed))
                self.assertLess(len(made), 2 * size, (name, seed))
                if mutated(content, Random(0)) is not None:
                    self.assertIsNotNone(mutated(made, Random(0), 1 << 30), (name, seed))

    def test_what_costs_more_than_in_proportion(self) -> None:
        """It is found at the size where it matters, though a small input is cheap; what is linear is not."""

        def quadratic(data: bytes) -> None:
            for start in range(0, len(data), 64):
                data.count(b"a", start)

        def linear(data: bytes) -> None:
            data.count(b"a")

        cost.timed(quadratic)(b"a" * SMALLEST)
        self.assertRaises(cost.TooCostly, cost.timed(quadratic), b"a" * (512 << 10))
        cost.timed(linear)(b"a" * (8 << 20))

    def test_memory_in_proportion(self) -> None:
        """A large input may take more, but not many times its own size."""

        def times(count: int) -> cost.Target:
            def swollen(data: bytes) -> None:
                self.assertTrue(bytearray(count * len(data)))

            return swollen

        content = bytes(4 << 20)
        cost.check_memory(times(8), content)
        self.assertRaises(cost.TooCostly, cost.check_memory, times(40), content)

    def test_pieces(self) -> None:
        """A small input comes in pieces as its first byte says, a large one in a thousand."""
        for data, most, step in (
            (b"", 256, 1),
            (b"\x00abc", 256, 1),
            (b"\xffabc", 256, 256),
            (b"\x80abc", 127, 2),
            (bytes(1 << 20), 256, 1024),
        ):
            self.assertEqual(cost.step_of(data, most), step)


class CostTests(SynchronousTestCase):
    """The oracle of cost sees what it is for."""

    def test_calls(self) -> None:
        """Many calls for few bytes are a finding; as many as an ordinary decoder makes are none."""

        def quadratic(data: bytes) -> None:
            for start in range(len(data)):
                for end in range(start):
                    data.count(b"a", end, start)

        cost.counted(quadratic)(b"a" * 100)
        self.assertRaises(cost.TooCostly, cost.counted(quadratic), b"a" * 1000)

    def test_memory(self) -> None:
        """What an input takes at any moment counts, also when it is freed at once."""

        def swollen(data: bytes) -> None:
            self.assertTrue(bytearray(int(data)))

        cost.check_memory(swollen, b"1000")
        self.assertRaises(cost.TooCostly, cost.check_memory, swollen, b"40000000")

    def test_time(self) -> None:
        """What takes too long in each of three runs is a finding, unless it is none elsewhere."""
        runs: list[bytes] = []

        def slow(data: bytes) -> None:
            runs.append(data)
            begun = time.thread_time()
            while time.thread_time() - begun < 2 * cost.SECONDS:
                pass

        self.assertRaises(cost.TooCostly, cost.timed(slow), b"")
        self.assertEqual(len(runs), 3)
        cost.timed(slow, lambda _: False)(b"")
