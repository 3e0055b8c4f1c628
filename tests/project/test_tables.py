"""Tables and counts in the pages for people have what the code has: objects, kinds, commands, decoders."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.account.names import ACCOUNTS, bound_secret_of, token_secret_of
from liqod.agent.account.rights import required
from liqod.config.load import parse
from liqod.config.schema import EgressKind
from liqod.kube import resources
from liqod.kube.resources import SECRETS, SERVICEACCOUNTS, Resource
from liqod.kubelet.reflection.forge.event import _KINDS
from liqod.kubelet.reflection.kinds import KINDS
from liqod.model.ids import ClusterID
from liqod.model.records.invitations import invitation_name, token_name
from liqod.model.records.rotation import IDENTITY_SECRET
from tests.fuzz.targets.every import TARGETS
from tests.project.test_architecture import python_files
from tests.project.test_limits import COMMENT, DOCS, NUMBER, numbers, wrong

OWN: Final = "liqo-system"
ROLES: Final = tuple(
    f'[kubernetes]\nnamespace = "{OWN}"\n[names]\nenabled = true\n[metrics]\ntls = "own"\n[daemon]\nrole = "{role}"'
    for role in ("all", "control", "network", "names")
)
NAMED: Final = re.compile(r"([A-Z]\w+)?\W*`([\w-]+)`")


def section(page: Path, begin: str, end: str) -> str:
    """Return the part of a page from one text to another."""
    text = page.read_text()
    start = text.index(begin)
    return text[start : text.index(end, start + len(begin))]


def rows(text: str) -> Iterator[str]:
    """Yield the first column of each row of a table, without its head."""
    for line in text.splitlines():
        if line.startswith("| ") and not line.startswith(("| ---", "| object ", "| record ", "| kind ")):
            yield line.split("|")[1]


class ObjectTests(SynchronousTestCase):
    """What stands in a cluster."""

    def test_the_daemons_namespace(self) -> None:
        """docs/operations.md lists the objects with a fixed name in the namespace of the daemon, and no other ones."""
        rights = [right for text in ROLES for right in required(parse(text, {}))]
        wanted = {(right.resource.kind, right.name) for right in rights if right.namespace == OWN and right.name}
        wanted |= {(SERVICEACCOUNTS.kind, account) for account in ACCOUNTS}
        # Of these rights the daemon has wider ones, or none.
        of_pairing = (token_name("ID"), invitation_name(ClusterID("CLUSTER")))
        of_accounts = (*map(bound_secret_of, ACCOUNTS), *map(token_secret_of, ACCOUNTS))
        secrets = (IDENTITY_SECRET, *of_accounts, *of_pairing)
        wanted |= {(SECRETS.kind, name) for name in secrets}
        listed: set[tuple[str, str]] = set()
        kind = ""
        for row in rows(section(DOCS / "operations.md", f"in the namespace `{OWN}`", "And elsewhere:")):
            for given, name in NAMED.findall(row):
                kind = given or kind
                listed.add((kind, name))
        self.assertEqual(listed, wanted)

    def test_files_of_the_daemon(self) -> None:
        """docs/operations.md and docs/architecture.md name each file that stays in the state directory."""
        texts = [file.read_text() for file in python_files("liqod")]
        keeping = [text for text in texts if '"STATE_DIRECTORY"' in text]
        names = [name for text in keeping for name in re.findall(r'^_FILE: Final = "([\w.-]+)"$', text, re.MULTILINE)]
        self.assertEqual(len(names), len(keeping))
        for page in ("operations.md", "architecture.md"):
            text = (DOCS / page).read_text()
            self.assertEqual([name for name in names if f"`{name}`" not in text], [], page)

    def test_records(self) -> None:
        """Each kind of record that liqod defines is in the tables of docs/operations.md and docs/architecture.md."""
        kinds = {
            one.kind for one in vars(resources).values() if isinstance(one, Resource) and one.group.endswith("liqo.io")
        }
        self.assertIn("SearchDomain", kinds)
        for page, begin, end in (
            ("operations.md", "In the cluster, in the namespace", "## Offloading a namespace"),
            ("architecture.md", "## Records", "## Packages"),
        ):
            text = section(DOCS / page, begin, end)
            self.assertEqual({kind for kind in kinds if kind not in text}, set(), page)

    def test_reflected_kinds(self) -> None:
        """Each kind that is reflected has a row in docs/reflection.md."""
        named = {word for row in rows((DOCS / "reflection.md").read_text()) for word in re.findall(r"\w+", row)}
        self.assertEqual({kind.home.kind for kind in KINDS} - named, set())

    def test_reflected_kinds_elsewhere(self) -> None:
        """Each kind that is reflected can be named by a rule of egress, and its events come home."""
        self.assertEqual({kind.setting for kind in KINDS} - set(get_args(EgressKind)), set())
        self.assertEqual({kind.home.kind for kind in KINDS} - set(_KINDS), set())


def with_records(command: Mapping[str, Any], *path: str) -> Iterator[str]:
    """Yield the commands of a tree that print records instead of applying them."""
    if any(param["name"] == "records" for param in command["params"]):
        yield " ".join(path)
    for name, inside in command.get("commands", {}).items():
        yield from with_records(inside, *path, name)


class CommandTests(SynchronousTestCase):
    """Commands in sentences."""

    def test_dry_run(self) -> None:
        """docs/cli.md names the commands whose --dry-run prints records, and no other ones."""
        tree = msgspec.json.decode((DOCS.parent / "liqod" / "cli" / "console" / "command_tree.json").read_bytes())
        text = section(DOCS / "cli.md", "## Print records", " have `--dry-run`")
        self.assertEqual(sorted(re.findall(r"`([a-z -]+)`", text)), sorted(with_records(tree)))


class CountTests(SynchronousTestCase):
    """Numbers in sentences."""

    def test_decoders(self) -> None:
        """docs/attacks.md counts the decoders that are fuzzed."""
        counted = re.findall(r"(\d+) decoders with a corpus", (DOCS / "attacks.md").read_text())
        self.assertEqual(counted, [str(len(TARGETS))])

    def test_numbers_of_other_pages(self) -> None:
        """Each number that names a constant has its value, on every page but that of limits, which has its own test."""
        pages = {page.name: page.read_text() for page in DOCS.rglob("*.md") if page.name != "limits.md"}
        self.assertEqual({name: some for name, text in pages.items() if (some := wrong(text))}, {})
        self.assertGreater(sum(len(list(numbers(text))) for text in pages.values()), 7)
        unread = [name for name, text in pages.items() if len(COMMENT.findall(text)) != len(NUMBER.findall(text))]
        self.assertEqual(unread, [])
