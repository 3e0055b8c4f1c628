"""``make docs``: the site of the documentation in ``build/site``, made by MkDocs; a warning fails it.

Its pages are those of ``docs``, some of the checkout's root, and the reference, which is made of the code. Links that
leave the site lead to the source. ``--pages DIR`` writes the pages without making the site.
"""

from __future__ import annotations

import argparse
import configparser
import posixpath
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import api_pages
import reference
import yaml
from project import CHECKOUT

CONFIGURATION: Final = CHECKOUT / "mkdocs.yml"
STAGE: Final = CHECKOUT / "build" / "site-pages"
SITE: Final = CHECKOUT / "build" / "site"
FROM_ROOT: Final[Mapping[str, str]] = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changes.md",
    "SECURITY.md": "project/security.md",
    "CODE_OF_CONDUCT.md": "project/conduct.md",
}
"""Pages of the checkout's root, with their places in the site."""
LINK: Final = re.compile(r"(\]\()(?!\w+:)([^)\s#]+)")
"""The begin of a link to a file, and the file's path."""
REFERENCE: Final = "Reference"
"""The section of the site that the pages about Python are in."""
WRITTEN: Final = {"Project": ("kubernetes-conformance.md",)}
"""Pages that a run of something writes, by section: they are in the site where they are there."""


def main() -> None:
    """Write the pages, and make the site of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=Path, help="only write the pages, to this directory")
    only: Path | None = parser.parse_args().pages
    if only is not None:
        write(only)
        return
    write(STAGE)
    make(STAGE, SITE)
    print(SITE / "index.html")


def texts() -> dict[str, str]:
    """Return every page of the site by its place there."""
    found = {there: moved((CHECKOUT / here).read_text(encoding="utf-8"), here) for here, there in FROM_ROOT.items()}
    for file in sorted((CHECKOUT / "docs").rglob("*.md")):
        here = file.relative_to(CHECKOUT).as_posix()
        found[here.removeprefix("docs/")] = moved(file.read_text(encoding="utf-8"), here)
    found |= {f"reference/{name}": text for name, text in reference.pages().items()}
    return found | {f"reference/python/{name}": text for name, text in api_pages.pages().items()}


def write(directory: Path) -> None:
    """Write the pages and their pictures to a directory, which is made new."""
    shutil.rmtree(directory, ignore_errors=True)
    for name, text in texts().items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text, encoding="utf-8")
    shutil.copytree(CHECKOUT / "docs" / "images", directory / "images")


def placed(path: str) -> str:
    """Return where a file of the checkout is in the site; empty for one that is not there."""
    if path in FROM_ROOT:
        return FROM_ROOT[path]
    is_page = path.startswith("docs/") and (path.endswith(".md") or path.startswith("docs/images/"))
    return path.removeprefix("docs/") if is_page and (CHECKOUT / path).is_file() else ""


def moved(text: str, here: str) -> str:
    """Return a page of the checkout with links that lead on from its place in the site."""
    folder = posixpath.dirname(placed(here))

    def leading(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), found[2]))
        there = placed(path)
        return found[1] + (posixpath.relpath(there, folder or ".") if there else f"{source()}/{path}")

    return LINK.sub(leading, text)


def source() -> str:
    """Return where the source can be read, as setup.cfg says."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(CHECKOUT / "setup.cfg")
    lines = parser["metadata"]["project_urls"].split("\n")
    return dict(line.split(" = ") for line in lines if line)["Source"]


def anchor(heading: str, separator: str = "-") -> str:
    """Return the anchor of a heading as GitHub makes it, so that a link leads to it in both places. Pure."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def navigation() -> list[dict[str, Any]]:
    """Return the sections of the site with their pages; those about Python are found and not listed."""
    sections: list[dict[str, Any]] = yaml.safe_load(CONFIGURATION.read_text(encoding="utf-8"))["nav"]
    names = sorted(api_pages.pages(), key=lambda name: (name != "index.md", name))
    more: dict[str, list[Any]] = {
        title: [page for page in pages if placed(f"docs/{page}")] for title, pages in WRITTEN.items()
    }
    more[REFERENCE] = [{"Python": [f"reference/python/{name}" for name in names]}]
    return [
        {title: [*inside, *more[title]] if title in more else inside}
        for section in sections
        for title, inside in section.items()
    ]


def listed(entries: Sequence[Any]) -> list[str]:
    """Return the places of all pages in a part of the navigation, in their order. Pure."""
    found: list[str] = []
    for entry in entries:
        for inside in entry.values() if isinstance(entry, Mapping) else [entry]:
            found += [inside] if isinstance(inside, str) else listed(inside)
    return found


def make(pages: Path, target: Path) -> None:
    """Make the site of pages in a directory; ends the program where MkDocs warns of something."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    config = load_config(
        str(CONFIGURATION),
        docs_dir=str(pages.absolute()),
        site_dir=str(target.absolute()),
        nav=navigation(),
        markdown_extensions=[{"toc": {"slugify": anchor, "permalink": True}}],
        strict=True,
    )
    config.plugins.on_startup(command="build", dirty=False)
    try:
        build(config)
    finally:
        config.plugins.on_shutdown()


if __name__ == "__main__":
    main()
