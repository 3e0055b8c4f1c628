"""The site of the documentation: what is in it, that its reference is the code, and that its links lead somewhere."""

from __future__ import annotations

import importlib.util
import posixpath
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.console.errors import MEANINGS
from liqod.cli.main import COMMANDS
from liqod.cli.status.reasons import reasons
from liqod.config.schema import Settings
from liqod.kube import resources
from liqod.kube.resources import Resource
from tests.environment import require
from tests.metrics.test_documented import PAGE as METRICS
from tests.metrics.test_documented import ROW
from tests.project.test_references import LINKS

CHECKOUT = Path(__file__).resolve().parents[2]
TOOLS = CHECKOUT / "packaging/tools"
sys.path.insert(0, str(TOOLS))

import reference  # noqa: E402 (the tools are scripts beside each other)
import website  # noqa: E402

OTHERS = re.compile(r"^ {0,3}\[[^\]]+\]:\s|<(?:a|img)\s", re.MULTILINE)
"""Links in other forms than the one that is read here."""
SPANS = re.compile(r"```.*?```|`[^`\n]*`|^ {4}[^\n]*$", re.MULTILINE | re.DOTALL)


@cache
def texts() -> dict[str, str]:
    """Return the pages of the site, made once for a process."""
    return website.texts()


@cache
def anchors(text: str) -> frozenset[str]:
    """Return the anchors of a page."""
    return frozenset(website.anchor(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE))


def dead(pages: dict[str, str]) -> list[str]:
    """Return the links between pages that lead nowhere."""
    found = []
    for name, text in pages.items():
        for path, anchor in LINKS.findall(text):
            there = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            if there.startswith("images/") and (CHECKOUT / "docs" / there).is_file():
                continue
            if there not in pages or (anchor and anchor[1:] not in anchors(pages[there])):
                found.append(f"{name}: {path}{anchor}")
    return found


class PagesTests(SynchronousTestCase):
    """Which pages there are, and where they lead."""

    def test_each_page_is_listed_once(self) -> None:
        """The navigation has every page, those made of the code too, and no other ones."""
        self.assertEqual(sorted(website.listed(website.navigation())), sorted(texts()))

    def test_links_lead_somewhere(self) -> None:
        """Every link from page to page, and to a heading there, leads to one that is in the site."""
        self.assertEqual(dead(texts()), [])
        links = sum(len(LINKS.findall(text)) for text in texts().values())
        self.assertGreater(links, 200)

    def test_dead_links_are_seen(self) -> None:
        """A page, a heading and a picture that are not there are found, and what is there is not."""
        pages = {"a/x.md": "# X y\n[1](../b.md#z) [2](x.md#x-y) [3](#x-y) [4](../images/no.png)", "b.md": "# B"}
        self.assertEqual(dead(pages), ["a/x.md: ../b.md#z", "a/x.md: ../images/no.png"])

    def test_no_other_form_of_links(self) -> None:
        """Pages of the checkout have links in one form, so that all of them are looked at."""
        pages = [*CHECKOUT.glob("*.md"), *(CHECKOUT / "docs").rglob("*.md")]
        self.assertEqual([page.name for page in pages if OTHERS.search(SPANS.sub("", page.read_text()))], [])

    def test_links_of_other_pages(self) -> None:
        """Pages of the checkout that are not below docs lead to files that exist."""
        pages = [*CHECKOUT.glob("*.md"), CHECKOUT / "changes/README.md", *(CHECKOUT / ".github").glob("*.md")]
        absent = [
            f"{page.name}: {path}"
            for page in pages
            for path, _ in LINKS.findall(page.read_text())
            if path and not (page.parent / path).exists()
        ]
        self.assertEqual(absent, [])

    def test_moved(self) -> None:
        """A link goes on to the page's place in the site; one to what is no page leads to the source."""
        text = "[1](../../README.md#x) [2](../cli.md) [3](#y) [4](https://x.example/z) [5](../../examples/gitops)"
        self.assertEqual(
            website.moved(text, "docs/guides/kind.md").replace(website.source(), "SOURCE"),
            "[1](../index.md#x) [2](../cli.md) [3](#y) [4](https://x.example/z) [5](SOURCE/examples/gitops)",
        )
        self.assertEqual(website.moved("[1](docs/cli.md#a)", "README.md"), "[1](cli.md#a)")
        self.assertEqual(website.moved("[1](../README.md)", "docs/faq.md"), "[1](index.md)")
        self.assertEqual(website.moved("[1](docs/faq.md)", "SECURITY.md"), "[1](../faq.md)")


class GeneratedTests(SynchronousTestCase):
    """The pages that are made of the code."""

    def test_commands(self) -> None:
        """Each command has a heading with what its help says."""
        page = texts()["reference/commands.md"]
        names = [name for section in COMMANDS.values() for name in section]
        self.assertGreater(len(names), 30)
        self.assertEqual([name for name in names if f"## liqodctl {name}\n" not in page], [])
        self.assertIn("## liqodctl token create\n", page)
        self.assertIn("--dry-run", page)

    def test_settings(self) -> None:
        """Each setting has a row in its section, with a sentence."""
        page = texts()["reference/settings.md"]
        for section in msgspec.structs.fields(Settings):
            text = page.partition(f"## [{section.encode_name}]\n")[2].partition("\n## ")[0]
            rows = dict(re.findall(r"^\| `([\w-]+)` \| .+ \| (.+) \|$", text, re.MULTILINE))
            names = {field.encode_name for field in msgspec.structs.fields(type(getattr(Settings(), section.name)))}
            self.assertEqual(set(rows), names, section.name)
            self.assertEqual([name for name, said in rows.items() if len(said) < 5], [], section.name)

    def test_kinds_of_values(self) -> None:
        """A setting's values are said in words: bounds, choices, lists and tables."""
        page = texts()["reference/settings.md"]
        for row in (
            '| `role` | `"all"` or `"control"` or `"names"` or `"network"` | `"all"` |',
            "| `max-sessions` | whole number from 1 to 4096 | `512` |",
            "| `mdns` | `true` or `false` | `true` |",
            "| `ping-interval` | seconds, more than 0 | `10.0` |",
            "| `interfaces` | list of: text | `[]` |",
        ):
            self.assertIn(row, page)

    def test_records(self) -> None:
        """Each kind that liqod defines has its fields, those of lists too."""
        page = texts()["reference/records.md"]
        kinds = {
            one.kind for one in vars(resources).values() if isinstance(one, Resource) and one.group.endswith("liqo.io")
        }
        self.assertEqual({kind for kind in kinds if f"## {kind}\n" not in page}, set())
        domain = page.partition("## SearchDomain\n")[2].partition("\n## ")[0]
        self.assertIn("| `spec.domain` | string, length at most 200, required |", domain)
        self.assertIn("| `status.refreshSeconds` |", domain)
        self.assertIn("[].", page)

    def test_fields(self) -> None:
        """A schema's fields are listed with those inside of lists and maps."""
        inside = {"type": "object", "properties": {"b": {"type": "string", "enum": ["x", "y"]}}, "required": ["b"]}
        schema = {"properties": {"a": {"type": "array", "items": inside}, "m": {"additionalProperties": inside}}}
        self.assertEqual(
            list(reference.fields(schema)),
            [
                ("`a`", "list of object", ""),
                ("`a[].b`", "string: `x`, `y`, required", ""),
                ("`m`", "map of object", ""),
                ("`m.*.b`", "string: `x`, `y`, required", ""),
            ],
        )

    def test_metrics(self) -> None:
        """The page has the metrics that docs/metrics.md explains, each with the same labels."""
        rows = {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in ROW.findall(METRICS.read_text())}
        self.assertEqual({one.name: set(one.labels) for one in reference.registered()}, rows)
        for name in rows:
            self.assertIn(f"| `{name}` | ", texts()["reference/metrics.md"])

    def test_codes(self) -> None:
        """Each code of a command and each reason is there."""
        page = texts()["reference/codes.md"]
        self.assertEqual([code for code in (*MEANINGS, *reasons()) if f"| `{code}` | " not in page], [])

    def test_python(self) -> None:
        """Each package has a page, on which each of its modules has a heading."""
        for package in (CHECKOUT / "liqod").glob("*/__init__.py"):
            page = texts()[f"reference/python/{package.parent.name}.md"]
            files = [file.relative_to(CHECKOUT).with_suffix("") for file in package.parent.rglob("*.py")]
            named = [".".join(file.parts) for file in files if not file.name.startswith("__")]
            self.assertEqual([name for name in named if f"## {name}\n" not in page], [])
        self.assertIn("`async Controller.reconcile(", texts()["reference/python/flow.md"])

    def test_cells(self) -> None:
        """What a table or Markdown would read in a text is written as it is; code spans stay."""
        self.assertEqual(reference.cell("a|b  *c*\n<d> `e|_f_`"), "a\\|b \\*c\\* &lt;d> `e|_f_`")


class MadeTests(SynchronousTestCase):
    """The site itself."""

    def test_no_warning(self) -> None:
        """MkDocs makes the site of these pages, and warns of nothing; a dead link fails it."""
        require("" if importlib.util.find_spec("mkdocs") else "MkDocs is not installed: `make venv` does it")
        place = Path(self.mktemp()).absolute()
        paths = [str(place / "pages"), str(place / "site")]
        website.write(place / "pages")
        for text, status in (("", 0), ("\n[gone](gone.md)\n", 1)):
            with (place / "pages/faq.md").open("a") as page:
                page.write(text)
            code = f"import pathlib, website; website.make(pathlib.Path({paths[0]!r}), pathlib.Path({paths[1]!r}))"
            done = subprocess.run([sys.executable, "-c", code], cwd=TOOLS, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, status, done.stderr)
        self.assertTrue((place / "site/reference/python/kube.html").is_file())
