"""The pages about the Python of liqod: each package with its modules, and what these have for others.

They are read from the source without importing it: signatures, and the first sentence of each docstring.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from project import CHECKOUT
from reference import cell, table

ROOT: Final = "liqod"
HEAD: Final = ("name", "what")
LONGEST: Final = 160
"""Characters of a signature; what is longer is cut."""


@cache
def pages() -> dict[str, str]:
    """Return the pages by their names in the folder ``reference/python``: one for each package, and the list."""
    packages = sorted(path.parent for path in (CHECKOUT / ROOT).glob("*/__init__.py"))
    found = {f"{package.name}.md": page(package) for package in packages}
    rows = [[f"[{ROOT}.{one.name}]({one.name}.md)", cell(_said(one / "__init__.py"))] for one in packages]
    own = [text for module in sorted((CHECKOUT / ROOT).glob("*.py")) for text in _module(module)]
    head = (
        "# Python\n\nThis page is made of the code. liqod is a program and not a library: what is here may change with "
        "any release. What does not change are the commands, the records, the metrics and the protocol.\n\n"
    )
    return {"index.md": f"{head}{table(('package', 'what'), rows)}\n" + "\n".join(own), **found}


def page(package: Path) -> str:
    """Return the page of a package with all that is below it."""
    parts = [f"# {_name(package / '__init__.py')}\n", f"{cell(_said(package / '__init__.py'))}\n"]
    for file in sorted(package.rglob("*.py")):
        if file != package / "__init__.py":
            parts += _module(file)
    return "\n".join(parts)


def _module(file: Path) -> Sequence[str]:
    if file.stem.startswith("__") and file.stem != "__init__":
        return ()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    rows = [[f"`{name}`", cell(said) or "-"] for name, said in members(tree)]
    return [f"## {_name(file)}\n", f"{cell(first(tree))}\n", *([table(HEAD, rows)] if rows else [])]


def members(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield what a module has for others: the line that defines it, and what is said of it. Pure."""
    for number, node in enumerate(tree.body):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            bases = ", ".join(ast.unparse(one) for one in (*node.bases, *node.keywords))
            yield _cut(f"class {node.name}({bases})" if bases else f"class {node.name}"), first(node)
            for inside in node.body:
                if isinstance(inside, ast.FunctionDef | ast.AsyncFunctionDef) and not inside.name.startswith("_"):
                    yield _cut(_signature(inside, f"{node.name}.")), first(inside)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield _cut(_signature(node)), first(node)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            after = tree.body[number + 1 : number + 2]
            if isinstance(target, ast.Name) and not target.id.startswith("_"):
                yield target.id, _text(after[0]) if after else ""


def first(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Module) -> str:
    """Return the first paragraph of a docstring, or nothing. Pure."""
    return (ast.get_docstring(node) or "").partition("\n\n")[0]


def _text(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return node.value.value.partition("\n\n")[0]
    return ""


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, owner: str = "") -> str:
    before = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{before}{owner}{node.name}({ast.unparse(node.args)}){returns}"


def _cut(text: str) -> str:
    # A bar would end the cell of a table, and a backtick its code span.
    plain = text.replace("|", "or").replace("`", "'")
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 3]}..."


def _said(file: Path) -> str:
    return first(ast.parse(file.read_text(encoding="utf-8")))


def _name(file: Path) -> str:
    parts = file.relative_to(CHECKOUT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
