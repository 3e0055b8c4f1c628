"""Each command line of the guides, and each configuration in them, against what there is: programs, chart, files."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import yaml
from attrs import field, frozen
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.setup.up.chart.render import Release, default_values, render
from liqod.config.load import SettingsError, parse
from liqod.kube import manifests
from tests.cli.test_documents import misparsed
from tests.project.test_examples import strange

CHECKOUT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "packaging/tools"))

import chart  # noqa: E402 (the tools are scripts beside each other)
import project  # noqa: E402

PAGES: Final = [
    *sorted((CHECKOUT / "docs/guides").glob("*.md")),
    CHECKOUT / "README.md",
    CHECKOUT / "docs/install-in-cluster.md",
]
SPAN: Final = re.compile(r"`((?:helm|apt|make|systemctl|kubectl|kind|ctr) [^`]+)`")
ENDS: Final = ("|", "&&", ";")
OTHERS: Final = frozenset(("nft", "ufw", "firewall-cmd", "umask", "cd", "python3", "skopeo", "export"))
"""Programs whose words nothing here knows."""
FOREIGN: Final = ("[keyfile]",)
"""Begins of configurations of other programs."""
VERBS: Final = frozenset(
    ("apply", "create", "delete", "exec", "expose", "get", "label", "logs", "patch", "rollout", "scale", "describe")
)
TAKING: Final = frozenset(
    ("--namespace", "-n", "--context", "--kube-context", "--values", "-f", "--timeout", "--version")
)
FLAGS: Final = frozenset(("--create-namespace", "--wait", "--reuse-values", "--no-hooks"))
STATIC: Final = frozenset(("liqod-tunnel@liqod", "liqod-network-tunnel@liqod"))
RELEASED: Final = (
    chart.file_name(),
    f"liqod_{project.version()}-1_amd64.deb",
    f"liqod-{project.version()}-amd64.oci.tar",
)
"""The files of a release, as the tools name them."""


@frozen
class Page:
    """What a page has said so far: the files that its commands wrote or were given."""

    name: str
    written: set[str] = field(factory=set)

    def has(self, name: str) -> bool:
        """Tell whether a file is there where the command is typed: of the page, of the checkout, or of a release."""
        known = {*self.written, "/etc/liqod/liqod.toml"}
        there = re.sub(r"NEW|OLD|VERSION", "*", name.removeprefix("./").removeprefix("dist/"))
        return name in known or (CHECKOUT / name).exists() or any(fnmatch(one, there) for one in RELEASED)


def blocks(text: str) -> Iterator[str]:
    """Yield the indented blocks of a page, without what stands between fences."""
    fenced = False
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        fenced ^= line.startswith("```")
        is_code = line.startswith("    ") and not fenced
        if is_code or (lines and not line.strip()):
            lines.append(line)
        elif lines:
            yield _dedented(lines)
            lines = []
    if lines:
        yield _dedented(lines)


def _dedented(lines: Sequence[str]) -> str:
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "\n".join(line[indent:] for line in lines).strip() + "\n"


def commands(block: str) -> Iterator[list[str]]:
    """Yield the words of each command of a block of a shell, without assignments before it; ``>`` stays."""
    for line in block.replace("\\\n", " ").splitlines():
        words: list[str] = []
        for word in [*shlex.split(line, comments=True), ";"]:
            if word not in ENDS:
                words.append(word)
                continue
            if words:
                yield words
            words = []


def environment(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the assignments before a command, and the command."""
    found: dict[str, str] = {}
    while words and (at := re.match(r"^(\w+)=(.*)$", words[0])):
        found[at[1]] = at[2]
        words = words[1:]
    return found, words


def options(words: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the words that are no options, and the options with their values; LookupError for one not known here."""
    plain: list[str] = []
    given: list[tuple[str, str]] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            plain.append(word)
        elif name in (*TAKING, "--set", "--set-literal"):
            given.append((name, value if equals else next(rest, "")))
        elif name in FLAGS:
            given.append((name, value))
        else:
            raise LookupError(f"helm has no option {word}, as far as this test knows")
    return plain, given


def helm(words: list[str], page: Page) -> str:
    """Return what is wrong with a call of helm."""
    try:
        plain, given = options(words)
    except LookupError as error:
        return str(error)
    counts = {"install": 3, "upgrade": 3, "rollback": 2, "uninstall": 2, "test": 2}
    if not plain or plain[0] not in counts or plain[1:2] != ["liqod"]:
        return f"{plain[:2]} is no call of helm"
    if len(plain) < counts[plain[0]]:
        return "an argument is missing"
    if counts[plain[0]] == 3 and not page.has(plain[2]):
        return f"there is no {plain[2]}"
    values: dict[str, Any] = {}
    for name, value in given:
        if name == "--values" and not page.has(value) and value != "FILE":
            return f"there is no {value}"
        if name == "--set":
            for one in value.split(","):
                key, _, content = one.partition("=")
                put(values, key.split("."), yaml.safe_load(content))
    if wrong := strange(values, default_values()):
        return f"the chart has no {wrong[0]}"
    render(values, Release())
    return ""


def put(values: dict[str, Any], path: Sequence[str], content: object) -> None:
    """Set a value at a path of keys."""
    for key in path[:-1]:
        values = values.setdefault(key, {})
    values[path[-1]] = content


def kubectl(words: list[str], page: Page) -> str:
    """Return what is wrong with a call of kubectl."""
    if "--" in words:
        at = words.index("--")
        if why := wrong(words[at + 1 :], page):
            return why
        words = words[:at]
    plain = [word for word in words if not word.startswith("-")]
    if not VERBS.intersection(plain):
        return f"no verb of kubectl in {plain}"
    given = [word for before, word in pairwise(words) if before in ("-f", "-k") and "logs" not in plain]
    if missing := [name for name in given if not page.has(name)]:
        return f"there is no {missing[0]}"
    known = {one["metadata"]["name"] for one in manifests.definitions()}
    named = [kind for word in plain for kind in word.split(",") if kind.endswith(".liqo.io")]
    strangers = [kind for kind in named if kind not in known]
    return f"there is no kind {strangers[0]}" if strangers else ""


def systemctl(words: list[str], page: Page) -> str:
    """Return what is wrong with a call of systemctl."""
    units = [word for word in words[1:] if word.startswith("liqod")]
    missing = [one for one in units if not any((CHECKOUT / "systemd").glob(f"{one.partition('@')[0]}*.service"))]
    return f"there is no unit {missing[0]}" if missing or not units else ""


def apt(words: list[str], page: Page) -> str:
    """Return what is wrong with a call of apt."""
    described = (CHECKOUT / "packaging/deb/control").read_text()
    names = [word for word in words[1:] if not word.startswith("-")]
    known = set(re.findall(r"[a-z0-9][a-z0-9.+-]+", " ".join(re.findall(r"(?m)^[DRS]\w+s: (.*)$", described))))
    missing = [one for one in names if not (page.has(one) if "/" in one else one in known)]
    return f"the package knows nothing of {missing[0]}" if missing or not names else ""


def make(words: list[str], page: Page) -> str:
    """Return what is wrong with a call of make."""
    targets = re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
    missing = [word for word in words if "=" not in word and word not in targets]
    return f"make has no target {missing[0]}" if missing else ""


def files(words: list[str], page: Page) -> str:
    """Return what is wrong with a command that reads a file: pip, kind, ctr."""
    read = [word for before, word in pairwise(words) if before == "-r"]
    read += [word for word in words if word.endswith(".oci.tar")]
    missing = [one for one in read if not page.has(one)]
    return f"there is no {missing[0]}" if missing else ""


def copy(words: list[str], page: Page) -> str:
    """Return what is wrong with a copy of a file."""
    *_, source, target = words
    page.written.add(target)
    return "" if page.has(source) else f"there is no {source}"


def git(words: list[str], page: Page) -> str:
    """Return what is wrong with a call of git."""
    return "" if words == ["clone", "REPOSITORY", "liqod"] else "a guide begins with the files of a release"


CHECKS: Final[Mapping[str, Callable[[list[str], Page], str]]] = {
    "liqodctl": lambda words, _: misparsed(words),
    "twistd": lambda words, _: "" if words == ["-n", "liqod"] else "it is `twistd -n liqod`",
    "helm": helm,
    "kubectl": kubectl,
    "systemctl": systemctl,
    "apt": apt,
    "apt-get": apt,
    "make": make,
    "git": git,
    **dict.fromkeys(("pip", "kind", "ctr"), files),
    **dict.fromkeys(("cp", "install"), copy),
}


def wrong(words: list[str], page: Page) -> str:
    """Return what is wrong with a command; empty where nothing is."""
    given, words = environment(words)
    try:
        parse("", {name: value for name, value in given.items() if name.startswith("LIQOD_")})
    except SettingsError as error:
        return str(error)
    if not words:
        return ""
    if ">" in words:
        at = words.index(">")
        page.written.add(words[at + 1])
        words = words[:at]
    program = words[0].rpartition("/")[2]
    if program == "k3s":
        return wrong(words[1:], page)
    if program in OTHERS:
        return ""
    check = CHECKS.get(program)
    return check(words[1:], page) if check else f"{program} is no program that a guide has"


def faults(page: Page, block: str) -> list[str]:
    """Return what is wrong with a block: a configuration of ours, YAML, one of another program, or commands."""
    if block.startswith(FOREIGN):
        return []
    if block.startswith("["):
        try:
            parse(block, {})
        except SettingsError as error:
            return [str(error)]
        return []
    if block.startswith("apiVersion:"):
        return [] if yaml.safe_load(block)["kind"] else ["an object without a kind"]
    return [f"{' '.join(words)}: {why}" for words in commands(block) if (why := wrong(words, page))]


class GuideTests(SynchronousTestCase):
    def test_blocks(self) -> None:
        """Every command of every block could be typed as it stands, and every configuration is taken."""
        count = 0
        for path in PAGES:
            page = Page(path.name)
            for block in blocks(path.read_text()):
                count += 1
                self.assertEqual(faults(page, block), [], path.name)
        self.assertGreater(count, 50)

    def test_spans(self) -> None:
        """So could those in the text."""
        count = 0
        for path in PAGES:
            for found in SPAN.finditer(path.read_text()):
                text = " ".join(found[1].split())
                # What only names a command is no line to type.
                if "[" in text or len(text.split()) < 3 or (text.startswith("helm") and " liqod" not in text):
                    continue
                count += 1
                self.assertEqual([why for one in commands(text) if (why := wrong(one, Page(path.name)))], [], text)
        self.assertGreater(count, 10)

    def test_no_clone(self) -> None:
        """No guide but those that make a release's files, for a place without a network, begins with a clone."""
        cloned = [path.name for path in PAGES if "git clone" in path.read_text()]
        self.assertEqual(cloned, ["air-gapped.md"])

    def test_faults(self) -> None:
        """What could not be typed is found."""
        for text in (
            "helm install liqod ./liqod-*.zip --namespace x",
            "helm install liqod ./liqod-*.tgz --set replica=1",
            "helm install liqod ./liqod-*.tgz --set network.enable=true",
            "helm instal liqod ./liqod-*.tgz",
            "helm install liqod ./liqod-*.tgz --wiat",
            "kubectl get foreigncluster.liqo.io",
            "kubectl apply -f nothing.yaml",
            "kubectl aply -f x",
            "kubectl -n liqo-system exec deploy/liqod -- liqodctl statsu",
            "systemctl enable --now liqodd",
            "apt install ./liqod-*.deb",
            "apt install wireguard",
            "make debian",
            "kind load image-archive liqod-*-amd64.tar.oci.tar",
            "LIQOD_DAEMON__ROLL=control liqodctl install",
            "LIQOD_DAEMON__ROLE=manager liqodctl install",
            "git pull",
            "liqodctl up --invite && liqodctl peer",
            "frobnicate",
            '[network]\nmode = "tunnel"',
        ):
            self.assertEqual(len(faults(Page("x"), text + "\n")), 1, text)
