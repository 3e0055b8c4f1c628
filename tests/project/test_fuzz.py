"""Every decoder of strangers' bytes: the whole corpus, and what hypothesis makes of it."""

from __future__ import annotations

import time
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.fuzz import cost
from tests.fuzz.mutate import mutated
from tests.fuzz.seeds import CORPUS
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
