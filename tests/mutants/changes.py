"""Finds the small changes that could be made to a source text: pure, on its syntax tree and its bytes."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Final

from attrs import frozen

_COMPARISONS: Final[dict[type[ast.cmpop], tuple[str, tuple[str, ...]]]] = {
    ast.Lt: ("<", ("<=", ">=")),
    ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<=")),
    ast.GtE: (">=", (">", "<")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: (r"not\s+in", ("in",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: (r"is\s+not", ("is",)),
}
_IN_CEL: Final = (
    (rb" == ", " != "),
    (rb" != ", " == "),
    (rb" && ", " || "),
    (rb" \|\| ", " && "),
    (rb"(?<!!)has\(", "!has("),
    (rb"!has\(", "has("),
    (rb"\.all\(", ".exists("),
    (rb"\.exists\(", ".all("),
    (rb"\.startsWith\(", ".endsWith("),
    (rb"\.endsWith\(", ".startsWith("),
)
"""What is changed in expressions of admission policies, which are texts."""
_CEL: Final = re.compile(rb"\b(object|oldObject|request|namespaceObject)\.")
_OPPOSITES: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LEAVES: Final = (ast.Return, ast.Raise, ast.Continue, ast.Break)


@frozen(order=True)
class Change:
    """One replacement: bytes ``start`` to ``end`` become ``new``; ``definition``: the dotted name of the function.

    ``statement``: the first and the last line of the statement that it is in, without the statements inside that one.
    """

    start: int
    end: int
    new: str
    rule: str
    line: int
    definition: str
    statement: tuple[int, int]


def changes(source: bytes) -> list[Change]:
    """Return all changes of a source text in its order, each edit once; few of them may not compile."""
    tree = ast.parse(source)
    found: dict[tuple[int, int, str], Change] = {}
    finder = _Finder(source)
    for definition, function in definitions(tree):
        for change in finder.of_definition(definition, function):
            found.setdefault((change.start, change.end, change.new), change)
    return sorted(found.values())


def apply(source: bytes, change: Change) -> bytes:
    """Return the source text with one change made."""
    return source[: change.start] + change.new.encode() + source[change.end :]


def is_sound(source: bytes, change: Change) -> bool:
    """Return whether the changed text compiles to something else than the text itself."""
    try:
        changed = ast.parse(apply(source, change))
    except SyntaxError:
        return False
    return ast.dump(changed) != ast.dump(ast.parse(source))


def diff(source: bytes, change: Change) -> list[str]:
    """Return the lines that go, with "-", and those that come, with "+"."""
    before, after = source.decode().splitlines(), apply(source, change).decode().splitlines()
    lines = difflib.unified_diff(before, after, n=0, lineterm="")
    return [line for line in lines if line[:1] in "-+" and not line.startswith(("---", "+++"))]


def definition_texts(source: bytes) -> dict[str, str]:
    """Return the text of each function by its dotted name; of several that have one name (overloads), the last."""
    lines = source.decode().splitlines()
    return {name: "\n".join(lines[node.lineno - 1 : node.end_lineno]) for name, node in definitions(ast.parse(source))}


def definitions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield functions with their dotted names; a nested one belongs to the outermost."""

    def of(body: Iterable[ast.stmt], above: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from of(node.body, f"{above}{node.name}.")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{above}{node.name}", node

    return of(tree.body, "")


def _head(node: ast.AST) -> tuple[int, int] | None:
    """Return the lines of a statement, of a compound one those above its body."""
    if not isinstance(node, ast.stmt) or node.end_lineno is None:
        return None
    body = getattr(node, "body", None) or getattr(node, "cases", None)
    if body is None:
        return node.lineno, node.end_lineno
    first = body[0].pattern if isinstance(body[0], ast.match_case) else body[0]
    return node.lineno, max(node.lineno, first.lineno - 1)


class _Finder:
    """Finds changes in the functions of one source text."""

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def of_definition(self, name: str, function: ast.AST) -> Iterator[Change]:
        statements = [span for node in ast.walk(function) if (span := _head(node)) is not None]
        for node in ast.walk(function):
            for start, end, new, rule in self._of(node):
                line = self._source.count(b"\n", 0, start) + 1
                around = [span for span in statements if span[0] <= line <= span[1]]
                yield Change(start, end, new, rule, line, name, max(around, default=(line, line)))

    def _of(self, node: ast.AST) -> Iterator[tuple[int, int, str, str]]:
        match node:
            case ast.Compare():
                yield from self._comparison(node)
            case ast.BoolOp():
                yield from self._operands(node)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield (*self._span(node), self._text(operand), "drop not")
            case ast.If() | ast.While() | ast.IfExp():
                yield from self._condition(node)
            case ast.comprehension():
                yield from ((*self._span(condition), "True", "drop filter") for condition in node.ifs)
            case ast.match_case(guard=ast.expr() as guard):
                yield (*self._span(guard), "True", "drop guard of case")
            case ast.Slice():
                yield from self._off_by_one(node.lower)
                yield from self._off_by_one(node.upper)
            case ast.Call(func=ast.Name(id=name) as called) if name in _OPPOSITES:
                yield (*self._span(called), _OPPOSITES[name], f"{name} to {_OPPOSITES[name]}")
            case ast.JoinedStr() | ast.Constant(value=str()):
                yield from self._expression(node)
            case ast.FunctionDef(returns=ast.Name(id="bool")) | ast.AsyncFunctionDef(returns=ast.Name(id="bool")):
                yield from self._returns(node)

    def _expression(self, node: ast.expr) -> Iterator[tuple[int, int, str, str]]:
        start, end = self._span(node)
        text = self._source[start:end]
        if start < end and _CEL.search(text):
            for pattern, other in _IN_CEL:
                for found in re.finditer(pattern, text):
                    yield start + found.start(), start + found.end(), other, f"in CEL: {other.strip()}"

    def _comparison(self, node: ast.Compare) -> Iterator[tuple[int, int, str, str]]:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            pattern, others = _COMPARISONS[type(operator)]
            start, end = self._span(left)[1], self._span(right)[0]
            found = re.search(pattern.encode(), self._source[start:end])
            if found is not None:
                for other in others:
                    yield start + found.start(), start + found.end(), other, f"{found[0].decode()} to {other}"
            if isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE | ast.Eq | ast.NotEq):
                yield from self._off_by_one(right)
            left = right

    def _operands(self, node: ast.BoolOp) -> Iterator[tuple[int, int, str, str]]:
        word = "and" if isinstance(node.op, ast.And) else "or"
        begin, end = self._span(node)
        cuts = []
        for one, next_one in zip(node.values, node.values[1:], strict=False):
            gap = (self._span(one)[1], self._span(next_one)[0])
            found = re.search(rf"\s*\b{word}\b\s*".encode(), self._source[slice(*gap)])
            if found is None:
                return
            cuts.append((gap[0] + found.start(), gap[0] + found.end()))
        for number in range(len(node.values)):
            rule = f"drop operand {number + 1} of {word}"
            if number == 0:
                yield begin, cuts[0][1], "", rule
            else:
                yield cuts[number - 1][0], cuts[number][0] if number < len(cuts) else end, "", rule

    def _condition(self, node: ast.If | ast.While | ast.IfExp) -> Iterator[tuple[int, int, str, str]]:
        test, text = node.test, self._text(node.test)
        if text == "TYPE_CHECKING" or isinstance(test, ast.Constant):
            return
        start, end = self._span(test)
        if isinstance(node, ast.If) and not node.orelse and isinstance(node.body[-1], _LEAVES):
            yield start, end, "False", "drop guard"
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            return
        if not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
            yield start, end, f"not ({text})", "flip condition"

    def _returns(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[int, int, str, str]]:
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and node.value is not None:
                text = self._text(node.value)
                for other in ("True", "False"):
                    if text != other:
                        yield (*self._span(node.value), other, f"return {other}")

    def _off_by_one(self, bound: ast.expr | None) -> Iterator[tuple[int, int, str, str]]:
        if isinstance(bound, ast.Constant) and isinstance(bound.value, int | float) and bound.value is not True:
            yield (*self._span(bound), repr(bound.value + 1), "off by one")

    def _span(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _text(self, node: ast.expr) -> str:
        return self._source[slice(*self._span(node))].decode()
