"""What the project's files promise: changes, the one version, and distribution files that can be built again."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tests.environment import require
from tests.nightly import PARTS

CHECKOUT = Path(__file__).resolve().parents[2]
TOOLS = CHECKOUT / "packaging" / "tools"


def tool(code: str) -> str:
    """Run Python with the packaging tools at hand; returns what it prints. AssertionError when it fails."""
    environment = os.environ | {"PYTHONPATH": f"{TOOLS}:{CHECKOUT}"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)
    return done.stdout.strip()


def released() -> str:
    """Return the version, which stands in setup.cfg."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(CHECKOUT / "setup.cfg")
    return parser["metadata"]["version"]


class ChangesTests(SynchronousTestCase):
    def test_fragments(self) -> None:
        """Every file of a change has a kind and a sentence."""
        shown = tool("import release, project; print(release.news(release.fragments(project.CHECKOUT / 'changes')))")
        for line in filter(None, shown.splitlines()):
            self.assertRegex(line, r"^(### [A-Z][a-z]+|\* .+\.)$")

    def test_other_kinds(self) -> None:
        """A file of another kind is refused with those there are."""
        place = Path(self.mktemp()).absolute()
        place.mkdir()
        (place / "x.improved.md").write_text("Better.")
        with self.assertRaisesRegex(AssertionError, "x.improved.md: files are named NAME.KIND.md; kinds are added"):
            tool(f"import pathlib, release; release.fragments(pathlib.Path({str(place)!r}))")

    def test_version(self) -> None:
        """The changelog has a section for the version of setup.cfg."""
        self.assertRegex((CHECKOUT / "CHANGELOG.md").read_text(), rf"(?m)^## {released()}\b")


class RepackedTests(SynchronousTestCase):
    """The source distribution does not depend on when and by whom it was built."""

    def test_same_bytes(self) -> None:
        """Two archives of the same files, of other owners, dates and orders, become the same bytes."""
        code = (
            "import dist, hashlib, io, tarfile\n"
            "def archive(names, owner, date):\n"
            "    file = io.BytesIO()\n"
            "    with tarfile.open(fileobj=file, mode='w:gz') as tar:\n"
            "        for name in names:\n"
            "            member = tarfile.TarInfo(name)\n"
            "            member.uname, member.uid, member.mtime, member.size = owner, len(owner), date, 3\n"
            "            tar.addfile(member, io.BytesIO(b'abc'))\n"
            "    return file.getvalue()\n"
            "first, second = archive(['a', 'b'], 'me', 5), archive(['b', 'a'], 'you', 9)\n"
            "assert first != second\n"
            "once = dist.repacked(first, 7)\n"
            "print(once == dist.repacked(second, 7), once == dist.repacked(first, 8))"
        )
        self.assertEqual(tool(code), "True False")


class ChartTests(SynchronousTestCase):
    """The chart as one file."""

    def test_same_bytes(self) -> None:
        """It has the chart's files below its name, that of the chart first, and the same bytes each time."""
        code = (
            "import chart, io, tarfile\n"
            "packed = chart.packed(7)\n"
            "assert packed == chart.packed(7) != chart.packed(8)\n"
            "names = tarfile.open(fileobj=io.BytesIO(packed)).getnames()\n"
            "print(names[0], chart.file_name(), len(names) == len(set(names)))\n"
            "print(*sorted(names))"
        )
        first, names = tool(code).splitlines()
        self.assertEqual(first, f"liqod/Chart.yaml liqod-{released()}.tgz True")
        files = (path for path in (CHECKOUT / "packaging/chart").rglob("*") if path.is_file())
        wanted = sorted(f"liqod/{path.relative_to(CHECKOUT / 'packaging/chart')}" for path in files)
        self.assertEqual(names.split(), wanted)

    def test_another_version(self) -> None:
        """A chart that was left at another version than the program's is not packed."""
        with self.assertRaisesRegex(AssertionError, "packaging/chart/Chart.yaml has .*, and setup.cfg 99.0"):
            tool("import chart; chart.version = lambda: '99.0'; chart.packed(7)")


class PageTests(SynchronousTestCase):
    def test_no_version(self) -> None:
        """No page names the version, which would stay there: they say VERSION, or have a pattern of the shell."""
        pages = [*(CHECKOUT / "docs").rglob("*.md"), CHECKOUT / "README.md", *(CHECKOUT / "examples").rglob("*.*")]
        version = released()
        self.assertEqual([page.name for page in pages if page.is_file() and version in page.read_text()], [])


class WorkflowTests(SynchronousTestCase):
    """What runs elsewhere: the same targets of the Makefile."""

    def test_targets(self) -> None:
        """Each target and each part of the night that the workflow names is there, and the night has a time."""
        workflow = yaml.safe_load((CHECKOUT / ".github/workflows/ci.yml").read_text())
        steps = [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
        words = [word for step in steps for word in step.partition(".ci/run")[2].split() if "ARGS" not in word]
        targets = re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
        self.assertEqual(set(words) - {*targets, "matrix.part", '}}"'}, set())
        self.assertLessEqual({"deb", "image", "chart", "nightly", "coverage", "docs"}, set(words))
        parts = workflow["jobs"]["nightly"]["strategy"]["matrix"]["part"]
        self.assertEqual(set(parts) - {part.name for part in PARTS}, set())
        # YAML reads the key "on" as true.
        self.assertTrue(workflow[True]["schedule"])


class ManifestTests(SynchronousTestCase):
    """What is in the source distribution."""

    def test_whole(self) -> None:
        """It has everything that git has: what MANIFEST.in names, and what setuptools takes by itself."""
        require("" if (CHECKOUT / ".git").exists() else "the sources are no clone of the repository")
        words = ["git", "-C", str(CHECKOUT), "ls-files"]
        tracked = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
        lines = [line.split() for line in (CHECKOUT / "MANIFEST.in").read_text().splitlines()]
        named = {word for verb, *rest in lines if verb in ("graft", "include") for word in rest}
        taken = named | {"LICENSE", "MANIFEST.in", "liqod", "pyproject.toml", "setup.cfg"}
        places = {name.partition("/")[0] for name in tracked}
        self.assertEqual({one for one in places if not any(fnmatch(one, each) for each in taken)}, set())
        self.assertEqual({each for each in named if not any(fnmatch(one, each) for one in places)}, set())


class ManualTests(SynchronousTestCase):
    def test_commands(self) -> None:
        """liqodctl(1) has every command, and no line of it is taken for a request of troff."""
        page = tool("import manual; from liqod.cli.main import cli; print(manual.pages(cli)['man1/liqodctl.1'])")
        for name in ("install", "trust", "unoffload"):
            self.assertIn(f".SS liqodctl {name}\n", page)
        requests = {line.split()[0] for line in page.splitlines() if line.startswith((".", "'"))}
        self.assertEqual(requests, {".TH", ".SH", ".SS", ".TP", ".B", ".nf", ".fi"})
