"""Carries out templates: a tree and its data become text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from liqod.cli.setup.up.chart.functions import FUNCTIONS, is_true, to_text
from liqod.cli.setup.up.chart.syntax import (
    Block,
    Field,
    Function,
    Literal,
    Node,
    Operand,
    Pipeline,
    Print,
    Template,
    TemplateError,
    Text,
)


@attrs.frozen
class _Scope:
    """What an action sees: the current value, and variables; ``$`` is the value that the template was given."""

    dot: Any
    variables: dict[str, Any]

    def inner(self, dot: Any) -> _Scope:
        """Return the scope of a block: what it sets is not seen outside."""
        return _Scope(dot, dict(self.variables))


class Evaluation:
    """Carries out the templates of one chart; those that one file defines are known to all."""

    def __init__(self, templates: Iterable[Template]) -> None:
        self._defined = {name: nodes for template in templates for name, nodes in template.defined.items()}

    def text_of(self, nodes: Sequence[Node], data: Any) -> str:
        """Return what nodes print for their data; raises TemplateError."""
        return self._run(nodes, _Scope(data, {"$": data}))

    def _run(self, nodes: Sequence[Node], scope: _Scope) -> str:
        return "".join(self._node(node, scope) for node in nodes)

    def _node(self, node: Node, scope: _Scope) -> str:
        match node:
            case Text(text):
                return text
            case Print(value, ""):
                return to_text(self._value(value, scope))
            case Print(value, variable):
                scope.variables[variable] = self._value(value, scope)
                return ""
            case Block():
                return self._block(node, scope)

    def _block(self, block: Block, scope: _Scope) -> str:
        value = self._value(block.value, scope)
        if not is_true(value):
            return self._run(block.otherwise, scope.inner(scope.dot))
        if block.kind != "range":
            return self._run(block.body, scope.inner(value if block.kind == "with" else scope.dot))
        # Go goes through a map in the order of its keys.
        pairs = sorted(value.items()) if isinstance(value, Mapping) else list(enumerate(value))
        printed = []
        for key, item in pairs:
            inner = scope.inner(item)
            # One variable has the value, of two the first one has the key.
            both = (key, item) if len(block.variables) > 1 else (item,)
            inner.variables.update(zip(block.variables, both, strict=False))
            printed.append(self._run(block.body, inner))
        return "".join(printed)

    def _value(self, pipeline: Pipeline, scope: _Scope) -> Any:
        value: list[Any] = []
        for command in pipeline.commands:
            value = [self._command(command, scope, value)]
        return value[0]

    def _command(self, command: Sequence[Operand], scope: _Scope, last: list[Any]) -> Any:
        first, *others = command
        given = [self._operand(one, scope) for one in others] + last
        if isinstance(first, Function):
            return self._call(first.name, given)
        value = self._operand(first, scope)
        if callable(value):
            return value(*given)
        if given:
            raise TemplateError(f"{first} is no function, and has arguments")
        return value

    def _call(self, name: str, given: list[Any]) -> Any:
        if name == "include":
            template, data = given
            if template not in self._defined:
                raise TemplateError(f"there is no template {template!r}")
            return self.text_of(self._defined[template], data)
        if name not in FUNCTIONS:
            raise TemplateError(f"the function {name} is not known")
        try:
            return FUNCTIONS[name](*given)
        except (TypeError, AttributeError, ValueError) as error:
            if isinstance(error, TemplateError):
                raise
            raise TemplateError(f"{name}: {error}") from error

    def _operand(self, operand: Operand, scope: _Scope) -> Any:
        match operand:
            case Literal(value):
                return value
            case Pipeline():
                return self._value(operand, scope)
            case Function(name):
                return self._call(name, [])
            case Field(names, variable):
                if variable is None:
                    return _field(scope.dot, names)
                if variable not in scope.variables:
                    raise TemplateError(f"there is no variable {variable}")
                return _field(scope.variables[variable], names)


def _field(value: Any, names: Sequence[str]) -> Any:
    """Return a field; None where a map has it not, as Helm does."""
    for name in names:
        if not isinstance(value, Mapping):
            raise TemplateError(f"{value!r} has no field {name}")
        value = value.get(name)
    return value
