"""The template language of Helm charts, as far as the chart uses it: text and actions become a tree. Pure.

Source: Go, package text/template. What is not known here is refused, so that a chart that begins to use more of the
language fails its tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

_ACTION: Final = re.compile(r"\{\{(-(?=\s))?(.*?)((?<=\s)-)?\}\}", re.DOTALL)
_TOKEN: Final = re.compile(
    r"""\s*(?:
    (?P<text>"(?:\\.|[^"\\])*")
  | (?P<raw>`[^`]*`)
  | (?P<number>-?\d+(?![\w.]))
  | (?P<variable>\$\w*(?:\.[A-Za-z_]\w*)*)
  | (?P<field>\.(?:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)?)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<sign>:=|[()|,])
    )""",
    re.VERBOSE,
)
_ESCAPES: Final = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


class TemplateError(ValueError):
    """A template cannot be read, or cannot be carried out; the message says which one, and why."""


@attrs.frozen
class Literal:
    """A text, a number, or a truth value."""

    value: str | int | bool | None


@attrs.frozen
class Field:
    """A field of the current value, ``.a.b``; of a variable, ``$x.a``, or of the root, ``$.a``, if there is one."""

    names: tuple[str, ...]
    variable: str | None = None


@attrs.frozen
class Function:
    """The name of a function."""

    name: str


@attrs.frozen
class Pipeline:
    """Commands, each of which is given the value of the one before as its last argument."""

    commands: tuple[tuple[Operand, ...], ...]


Operand = Literal | Field | Function | Pipeline


@attrs.frozen
class Text:
    """What stands outside of actions."""

    text: str


@attrs.frozen
class Print:
    """An action that prints a value; with a ``variable`` it sets that instead."""

    value: Pipeline
    variable: str = ""


@attrs.frozen
class Block:
    """``if``, ``with`` or ``range``: a body for a true value, and one for another value.

    ``variables`` are those that ``range`` sets.
    """

    kind: str
    value: Pipeline
    body: tuple[Node, ...]
    otherwise: tuple[Node, ...] = ()
    variables: tuple[str, ...] = ()


Node = Text | Print | Block


@attrs.frozen
class Template:
    """One file: what it prints, and the templates that it defines by name."""

    nodes: tuple[Node, ...]
    defined: dict[str, tuple[Node, ...]]


def parse(text: str, name: str) -> Template:
    """Return a file as a tree; raises TemplateError, in which the file has a ``name``."""
    reader = _Reader(list(_pieces(text)), name)
    nodes, end = reader.nodes()
    if end:
        raise TemplateError(f"{name}: {end} without a beginning")
    return Template(nodes, reader.defined)


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Yield texts, and actions without their braces; white space is trimmed where a dash asks for it."""
    position, trim = 0, False
    for found in _ACTION.finditer(text):
        before = text[position : found.start()]
        before = before.lstrip() if trim else before
        yield before.rstrip() if found[1] else before, False
        yield found[2].strip(), True
        position, trim = found.end(), bool(found[3])
    rest = text[position:]
    yield rest.lstrip() if trim else rest, False


class _Reader:
    """Reads pieces one after the other."""

    def __init__(self, pieces: Sequence[tuple[str, bool]], name: str) -> None:
        self._pieces = pieces
        self._name = name
        self._at = 0
        self.defined: dict[str, tuple[Node, ...]] = {}

    def nodes(self) -> tuple[tuple[Node, ...], str]:
        """Return the nodes up to the end of a block, and the action that ends it; an empty one for the file's end."""
        found: list[Node] = []
        while self._at < len(self._pieces):
            piece, is_action = self._pieces[self._at]
            self._at += 1
            if not is_action:
                if piece:
                    found.append(Text(piece))
                continue
            if piece.startswith("/*"):
                continue
            word, _, rest = piece.partition(" ")
            if word in ("end", "else"):
                return tuple(found), piece
            if word == "define":
                self.defined[self._named(rest)] = self._body("define")
            elif word in ("if", "with", "range"):
                found.append(self._block(word, rest))
            else:
                found.append(self._print(piece))
        return tuple(found), ""

    def _body(self, kind: str) -> tuple[Node, ...]:
        body, end = self.nodes()
        if end != "end":
            raise self._error(f"{kind} is not ended")
        return body

    def _block(self, kind: str, rest: str) -> Block:
        tokens = self._tokens(rest)
        variables: tuple[str, ...] = ()
        if ("sign", ":=") in tokens:
            split = tokens.index(("sign", ":="))
            variables = tuple(text for sort, text in tokens[:split] if sort == "variable")
            tokens = tokens[split + 1 :]
            if kind != "range":
                raise self._error(f"{kind} sets no variable here")
        value = self._pipeline(tokens)
        body, end = self.nodes()
        if end == "end":
            return Block(kind, value, body, variables=variables)
        if end == "else":
            return Block(kind, value, body, self._body(kind), variables)
        word, _, condition = end.removeprefix("else").strip().partition(" ")
        if word != "if" or kind != "if":
            raise self._error(f"{kind} is not ended")
        # It shares the end of the block that it is a part of.
        return Block(kind, value, body, (self._block(word, condition),), variables)

    def _print(self, piece: str) -> Print:
        tokens = self._tokens(piece)
        if len(tokens) > 2 and tokens[0][0] == "variable" and tokens[1] == ("sign", ":="):
            return Print(self._pipeline(tokens[2:]), tokens[0][1])
        return Print(self._pipeline(tokens))

    def _named(self, text: str) -> str:
        match self._tokens(text):
            case [("text", name)]:
                return _unquoted(name)
        raise self._error(f"define {text}: a name was expected")

    def _tokens(self, text: str) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        position, text = 0, text.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None or match.lastgroup is None:
                raise self._error(f"{text[position:].strip()!r} is not understood")
            found.append((match.lastgroup, match[match.lastgroup]))
            position = match.end()
        return found

    def _pipeline(self, tokens: list[tuple[str, str]]) -> Pipeline:
        found, rest = self._commands(tokens, 0)
        if rest != len(tokens):
            raise self._error(f"{tokens[rest][1]!r} was not expected")
        return found

    def _commands(self, tokens: list[tuple[str, str]], at: int) -> tuple[Pipeline, int]:
        """Return a pipeline, and where it ends: at a closing parenthesis, or the end."""
        commands: list[tuple[Operand, ...]] = []
        words: list[Operand] = []
        while at < len(tokens) and tokens[at] != ("sign", ")"):
            if tokens[at] == ("sign", "|"):
                commands.append(tuple(words))
                words = []
                at += 1
                continue
            if tokens[at] == ("sign", "("):
                inner, at = self._commands(tokens, at + 1)
                if at >= len(tokens):
                    raise self._error("a parenthesis is not closed")
                words.append(inner)
            else:
                words.append(self._operand(*tokens[at]))
            at += 1
        commands.append(tuple(words))
        if not all(commands):
            raise self._error("a command is empty")
        return Pipeline(tuple(commands)), at

    def _operand(self, kind: str, text: str) -> Operand:
        match kind:
            case "text":
                return Literal(_unquoted(text))
            case "raw":
                return Literal(text[1:-1])
            case "number":
                return Literal(int(text))
            case "variable":
                variable, *names = text.split(".")
                return Field(tuple(names), variable)
            case "field":
                return Field(tuple(part for part in text.split(".") if part))
            case "word":
                constants: dict[str, bool | None] = {"true": True, "false": False, "nil": None}
                return Literal(constants[text]) if text in constants else Function(text)
        raise self._error(f"{text!r} was not expected")

    def _error(self, what: str) -> TemplateError:
        return TemplateError(f"{self._name}: {what}")


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text[1:-1])
