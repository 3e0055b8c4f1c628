"""Every line that the daemon logs: a text that is written out, and fields whose names docs/logging.md explains."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from string import Formatter
from typing import Final

import attrs
from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.log.json_lines import RESERVED
from tests.project.test_architecture import CHECKOUT, python_files

PAGE: Final = CHECKOUT / "docs" / "logging.md"
LEVELS: Final = {"debug", "info", "warn", "error", "critical", "failure"}
OLDER: Final = {"format", "isError", "failure", "why", "system", "log_text"}
"""Members that Twisted's older log has in its events, beside those of ``RESERVED``: a field would take their place."""
SECURITY: Final = "liqod/audit/log.py"
"""The one place whose fields are not written out: those of docs/audit.md."""
FORWARDED: Final = "liqod/agent/log/observers.py"
"""What forwards lines of other libraries, whose text is theirs."""


@attrs.frozen
class Call:
    """One call that logs a line."""

    where: str
    text: ast.expr | None
    fields: dict[str, ast.expr]
    is_spread: bool


def calls() -> Iterator[Call]:
    """Yield every call of a logger in the daemon, but for what is forwarded."""
    trees = {str(file.relative_to(CHECKOUT)): ast.parse(file.read_text()) for file in python_files("liqod")}
    loggers = {name for tree in trees.values() for name in named_loggers(tree)}
    for file, tree in trees.items():
        if file == FORWARDED:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS:
                of = node.func.value
                name = of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""
                if name in loggers or is_logger(of):
                    yield Call(
                        f"{file}:{node.lineno}",
                        node.args[0] if node.args else None,
                        {one.arg: one.value for one in node.keywords if one.arg is not None},
                        any(one.arg is None for one in node.keywords),
                    )


def is_logger(node: ast.AST | None) -> bool:
    """Return whether an expression makes a logger."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Logger"


def named_loggers(tree: ast.AST) -> Iterator[str]:
    """Yield the names, and the attributes, that a module gives to loggers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and is_logger(node.value):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield target.attr if isinstance(target, ast.Attribute) else ast.unparse(target)


def problems(call: Call, known: set[str]) -> Iterator[str]:
    """Yield what is wrong with a call; ``known`` are the names of fields."""
    if not (isinstance(call.text, ast.Constant) and isinstance(call.text.value, str)):
        yield "its text is not written out"
        return
    for _, name, _, conversion in Formatter().parse(call.text.value):
        if name is not None and name not in call.fields:
            yield f"{{{name}}} is not the name of one of its fields"
        if conversion is not None:
            yield f"!{conversion} in its text"
    for name, value in call.fields.items():
        if name not in known:
            yield f"{name} is not in the table of {PAGE.name}"
        for node in ast.walk(value):
            is_repr = isinstance(node, ast.Call) and ast.unparse(node.func) in ("repr", "ascii")
            if is_repr or (isinstance(node, ast.FormattedValue) and node.conversion != -1):
                yield f"{name} is what repr shows"
    if call.is_spread and not call.where.startswith(SECURITY):
        yield "fields that are not written out"


def documented() -> list[str]:
    """Return the names in the page's table of fields, in its order."""
    section = PAGE.read_text().partition("## Fields")[2].partition("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)


class LogCallsTests(SynchronousTestCase):
    """What the code logs, against the page."""

    def test_all_are_found(self) -> None:
        """The calls are found at all: a renamed logger would make the other tests empty."""
        every = list(calls())
        self.assertGreater(len(every), 150)
        self.assertGreater(len({call.where.partition(":")[0] for call in every}), 60)

    def test_texts_and_fields(self) -> None:
        """No text is made up at run time, no value is a repr, and each field has one of the names of the page."""
        known = {*documented(), "line"}
        self.assertEqual([f"{call.where}: {one}" for call in calls() for one in problems(call, known)], [])

    def test_the_table(self) -> None:
        """The page has each field that is used, once, in alphabetical order, and none that is not."""
        names = documented()
        self.assertEqual(names, sorted(set(names)))
        used = {name for call in calls() for name in call.fields} - {"line"}
        self.assertEqual(sorted(set(names) - used), [])

    def test_no_name_is_taken(self) -> None:
        """No field has the name of a member that each line has, or of one that Twisted's events have."""
        self.assertEqual({*documented()} & {*RESERVED, *OLDER}, set())

    def test_the_check_itself(self) -> None:
        """Each kind of mistake is found, and a good call has none."""
        for source, count in (
            ("_log.info('{peer} left', peer=peer)", 0),
            ("_log.failure('stopped')", 0),
            ("_log.info('{peer!r} left', peer=peer)", 1),
            ("_log.info(f'{peer} left')", 1),
            ("_log.info('{lender} left', lender=lender)", 1),
            ("_log.info('{peer} left', peer=repr(peer))", 1),
            ("_log.info('{peer} left', peer=f'{peer!r}')", 1),
            ("_log.info('{peer.id} left', peer=peer)", 1),
            ("_log.info('left', **fields)", 1),
        ):
            node = ast.parse(source, mode="eval").body
            assert isinstance(node, ast.Call)
            fields = {one.arg: one.value for one in node.keywords if one.arg is not None}
            call = Call("x.py:1", node.args[0], fields, any(one.arg is None for one in node.keywords))
            self.assertEqual(len(list(problems(call, {"peer"}))), count, source)
