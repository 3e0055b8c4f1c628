"""The mutation tests' own decisions: what is changed, which mutants are drawn, which tests are asked."""

from __future__ import annotations

import ast

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.mutants.changes import apply, changes, is_sound
from tests.mutants.checkout import ROOT, Copy
from tests.mutants.equivalent import EQUIVALENT, stale
from tests.mutants.imports import distances, is_near, is_test, kinship
from tests.mutants.reach import Known, lines_by_function
from tests.mutants.results import Verdict, table
from tests.mutants.sample import GROUPS, draw, is_below, mutants
from tests.mutants.trials import Result

SOURCE = b'''
LIMIT = 3

class Door:
    def opens(self, key: str, tries: int) -> bool:
        """May \xc3\xa9l go in?"""
        if tries >= 3 or not key:
            return False
        return (key == "a" or key == "b") and key not in self.lost

def first(names: list[str]) -> list[str]:
    return [name for name in names if name][:2]
'''
FIRST = "def first(names: list[str]) -> list[str]:"


def edits(source: bytes) -> set[tuple[str, str]]:
    """Return pairs of what is replaced, and by what."""
    return {(source[change.start : change.end].decode(), change.new) for change in changes(source)}


class ChangesTests(SynchronousTestCase):
    """What is changed in a source text."""

    def test_every_kind_of_change_is_found(self) -> None:
        """Comparisons, bounds, operands, conditions, guards, answers, filters and what is negated."""
        for edit in (
            (">=", ">"),
            (">=", "<"),
            ("3", "4"),
            ("tries >= 3 or ", ""),
            (" or not key", ""),
            ("not key", "key"),
            ("tries >= 3 or not key", "False"),
            ("tries >= 3 or not key", "not (tries >= 3 or not key)"),
            ("==", "!="),
            ("not in", "in"),
            ('(key == "a" or key == "b") and ', ""),
            (" and key not in self.lost", ""),
            ("False", "True"),
            ("name", "True"),
            ("2", "3"),
        ):
            self.assertIn(edit, edits(SOURCE))

    def test_expressions_of_policies_are_code(self) -> None:
        """What an API server evaluates is changed inside its text, and other texts are left alone."""
        source = b"def rules():\n    return [f\"!has(object.{X}) || request.a == 'b'\", 'a || b']\n"
        found = {(change.start, change.new) for change in changes(source)}
        places = {(source.index(old), new) for old, new in ((b"!has(", "has("), (b" || ", " && "), (b" == ", " != "))}
        self.assertEqual(found, places)
        self.assertTrue(all(is_sound(source, change) for change in changes(source)))

    def test_each_is_in_a_function_and_changes_one_line(self) -> None:
        """The line is where the change is, and constants of the module stay as they are."""
        lines = SOURCE.decode().splitlines()
        for change in changes(SOURCE):
            changed = apply(SOURCE, change).decode().splitlines()
            different = [
                number for number, pair in enumerate(zip(lines, changed, strict=True), 1) if len(set(pair)) > 1
            ]
            self.assertEqual(different, [change.line])
            self.assertIn(change.definition, ("Door.opens", "first"))

    def test_a_sound_change_means_something_else(self) -> None:
        """What is sound parses, to another tree; every change of this text is sound."""
        for change in changes(SOURCE):
            self.assertTrue(is_sound(SOURCE, change), change)
            self.assertNotEqual(ast.dump(ast.parse(apply(SOURCE, change))), ast.dump(ast.parse(SOURCE)))
        self.assertFalse(is_sound(SOURCE, evolve(changes(SOURCE)[0], new="if")))
        self.assertFalse(is_sound(b"a = 1\n", evolve(changes(SOURCE)[0], start=4, end=5, new="(1)")))


class SamplesTests(SynchronousTestCase):
    """Which mutants are drawn."""

    @given(st.integers(0, 9), st.integers(0, 12))
    def test_a_seed_draws_the_same_whatever_changes_elsewhere(self, seed: int, count: int) -> None:
        """Lines above and another module move no mutant out of the order in which the others are drawn."""
        alone = [mutant.name for mutant in draw({"liqod.a": SOURCE}, seed, count)]
        self.assertEqual(len(alone), count)
        moved = {"liqod.a": b"# more\n" * 3 + SOURCE, "liqod.b": SOURCE}
        both = [mutant.name for mutant in draw(moved, seed) if mutant.module == "liqod.a"]
        self.assertEqual(both[:count], alone)

    def test_a_mutant_keeps_its_name_where_its_function_goes(self) -> None:
        """In another module it is the same one, in a function that was edited another one."""
        names = {mutant.name for mutant in mutants("liqod.a", SOURCE)}
        self.assertEqual(names, {mutant.name for mutant in mutants("liqod.b.c", b"import b\n" + SOURCE)})
        edited = {mutant.name for mutant in mutants("liqod.a", SOURCE.replace(b"self.lost", b"self.gone"))}
        self.assertEqual(
            names & edited,
            {m.name for m in mutants("liqod.a", SOURCE) if m.change.definition == "first"},
        )

    def test_mutants_have_names_of_their_own(self) -> None:
        """Equal changes of equal lines are distinguished by their number."""
        names = [mutant.name for mutant in mutants("liqod.a", SOURCE + SOURCE.replace(b"Door", b"Gate"))]
        self.assertEqual(len(names), len(set(names)))

    def test_what_a_group_names_is_there(self) -> None:
        """A module that got another name is guarded by that one."""
        modules = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in ROOT.glob("liqod/**/*.py")]
        for prefixes in GROUPS.values():
            for prefix in prefixes:
                self.assertTrue(any(is_below(module, [prefix]) for module in modules), prefix)

    def test_what_is_equivalent_no_more_is_reported(self) -> None:
        """An entry of the list stands for a change that can be made; without the module it is out of date as well."""
        known = EQUIVALENT[0]
        self.assertEqual(stale({}), list(EQUIVALENT))
        name = known.definition.rpartition(".")[2]
        head, _, rest = known.now.partition(" and ")
        source = f"class PeerConnection:\n    def {name}(self):\n        {head} and x and {rest}\n            pass\n"
        self.assertNotIn(known, stale({known.module: source.encode()}))

    def test_a_package_holds_its_modules_and_no_neighbours(self) -> None:
        """A prefix ends at a dot."""
        self.assertTrue(is_below("liqod.peering.relay.heads", ["liqod.peering.relay"]))
        self.assertTrue(is_below("liqod.hosting.shadowpods.admission", GROUPS["restrictions"]))
        self.assertFalse(is_below("liqod.peering.relays", ["liqod.peering.relay"]))


class CopyTests(SynchronousTestCase):
    """Where mutants are tried."""

    def test_it_has_what_the_package_has(self) -> None:
        """Each file of the package is in the copy, those too that are links or in a folder that is one."""
        copy = Copy()
        self.addCleanup(copy.remove)
        files = ("liqod/cli/setup/host/files/systemd/liqod.service", "liqod/cli/setup/up/chart/files/values.yaml")
        for name in ("liqod/tap.py", "liqod/cli/status/operations.md", *files):
            self.assertEqual((copy.path / name).read_bytes(), (ROOT / name).read_bytes(), name)


class ChoicesTests(SynchronousTestCase):
    """Which tests are asked, and what is reported."""

    def test_distances_count_imports(self) -> None:
        """The shortest way counts, circles end, and what does not import the module is not there."""
        importers = {"a": ["b", "t"], "b": ["c", "a"], "c": ["t", "d"], "x": ["y"]}
        far = distances("a", lambda name: importers.get(name, ()))
        self.assertEqual(far, {"a": 0, "b": 1, "t": 1, "c": 2, "d": 3})

    def test_near_tests_have_the_words_of_the_module(self) -> None:
        """A shared word in the names counts; tests that need clusters are none."""
        near, far = (
            kinship(test, "liqod.hosting.shadowpods.admission")
            for test in ("tests.test_hosting_admit", "tests.project.test_tap")
        )
        self.assertGreater(near, far)
        apart = {"tests.hosting.test_x": 9, "tests.test_y": 2, "tests.kubelet.test_z": 3}
        self.assertEqual(
            [name for name in apart if is_near(name, "liqod.hosting.shadowpods.admission", apart)],
            ["tests.hosting.test_x", "tests.test_y"],
        )
        self.assertTrue(is_test("tests.scenario.test_kill"))
        self.assertFalse(is_test("tests.real.test_kill"))
        self.assertFalse(is_test("tests.peering.clusters"))

    def test_a_function_is_reached_when_its_body_ran(self) -> None:
        """The line of ``def`` runs when the module is imported, and proves nothing."""
        lines = SOURCE.decode().splitlines()
        body, head = lines.index("            return False") + 1, lines.index(FIRST) + 1
        ((name, (_, ran)),) = lines_by_function(SOURCE, {body, head}).items()
        self.assertEqual((name, ran), ("Door.opens", [3]))

    def test_a_change_is_reached_when_its_statement_ran(self) -> None:
        """As long as the function is as it was; after an edit of it, when anything of it ran."""
        guard = next(change for change in changes(SOURCE) if change.rule == "drop guard")
        answer = next(change for change in changes(SOURCE) if change.rule == "== to !=")
        lines = SOURCE.decode().splitlines()
        ran = {lines.index("        if tries >= 3 or not key:") + 1, lines.index("            return False") + 1}
        known = Known("", True, 1.0, {"liqod.a": lines_by_function(SOURCE, ran)})
        self.assertTrue(known.reaches("liqod.a", SOURCE, guard))
        self.assertFalse(known.reaches("liqod.a", SOURCE, answer))
        self.assertTrue(known.reaches("liqod.a", SOURCE.replace(b"tries >= 3", b"tries >= 4"), answer))
        self.assertFalse(known.reaches("liqod.b", SOURCE, guard))

    def test_the_table_adds_up(self) -> None:
        """A row for each package, and one for all."""
        one, two, *_ = mutants("liqod.wire.codec", SOURCE)
        other = mutants("liqod.hosting.shadowpods.admission", SOURCE)[0]
        verdicts = [
            Verdict(one, Result("killed", "t", 1.0, 1)),
            Verdict(two, Result("survived", "", 1.0, 4)),
            Verdict(other, Result("equivalent", "", 0.0, 0)),
        ]
        rows = [line.split() for line in table(verdicts).splitlines()[1:]]
        self.assertEqual(rows[0], ["liqod.hosting", "1", "0", "0", "1"])
        self.assertEqual(rows[1], ["liqod.wire", "2", "1", "1", "0"])
        self.assertEqual(rows[2], ["all", "3", "1", "1", "1"])
