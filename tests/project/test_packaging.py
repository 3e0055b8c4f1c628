"""The built package is complete: without the checkout it brings the plugin, the commands and the manifests."""

from __future__ import annotations

import atexit
import configparser
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path
from typing import ClassVar, Final

from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.web.server import STATIC

CHECKOUT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = ("liqod", "twisted", "setup.cfg", "pyproject.toml", "LICENSE", "README.md")
# The script of that name belongs to the environment that Twisted is installed in, which is another one.
TWISTD: Final = "from twisted.scripts.twistd import run; run()"


def run(argv: list[str], *, cwd: Path, path: str = "") -> str:
    """Run a program away from the checkout and return its output; AssertionError when it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path:
        environment["PYTHONPATH"] = path
    done = subprocess.run(argv, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(argv)}: {done.stdout}{done.stderr}")
    return done.stdout


def released_version() -> str:
    """Return the version, which stands in setup.cfg and nowhere else."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(CHECKOUT / "setup.cfg")
    return parser["metadata"]["version"]


class InstalledTests(SynchronousTestCase):
    """What a user gets who installs the wheel."""

    place: ClassVar[Path | None] = None

    def setUp(self) -> None:
        """Build the wheel from a copy of the sources and install it into an environment of its own, once."""
        if InstalledTests.place is None:
            InstalledTests.place = self._install()
        self.environment = InstalledTests.place / "environment"

    def _install(self) -> Path:
        place = Path(tempfile.mkdtemp())
        atexit.register(shutil.rmtree, place, ignore_errors=True)
        copy = place / "source"
        copy.mkdir()
        for name in SOURCES:
            source = CHECKOUT / name
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__", "dropin.cache"))
            elif source.exists():
                shutil.copy(source, copy / name)
        build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(place), str(copy)]
        run(build, cwd=place)
        run([sys.executable, "-m", "venv", "--without-pip", str(place / "environment")], cwd=place)
        python = place / "environment" / "bin" / "python"
        (wheel,) = place.glob("liqod-*.whl")
        install = [sys.executable, "-m", "pip", f"--python={python}", "install", "--quiet", "--no-deps", str(wheel)]
        run(install, cwd=place)
        return place

    def _output(self, *argv: str) -> str:
        """Run a program of the environment; the dependencies, and nothing of liqod, come from this one."""
        assert InstalledTests.place is not None
        bare = InstalledTests.place / "dependencies"
        if not bare.exists():
            bare.mkdir()
            for entry in Path(sysconfig.get_path("purelib")).iterdir():
                if "liqod" not in entry.name and entry.suffix != ".pth":
                    (bare / entry.name).symlink_to(entry)
        bin_ = self.environment / "bin"
        program = bin_ / argv[0]
        words = [str(program)] if program.exists() else [str(bin_ / "python"), "-m", argv[0]]
        return run([*words, *argv[1:]], cwd=InstalledTests.place, path=str(bare))

    def test_origin(self) -> None:
        """The environment uses the installed package and not the checkout."""
        file = self._output("python", "-c", "import liqod; print(liqod.__file__)").strip()
        self.assertTrue(file.startswith(str(self.environment)), file)

    def test_plugin_listed(self) -> None:
        """``twistd --help`` lists the daemon."""
        listed = self._output("python", "-c", TWISTD, "--help")
        self.assertRegex(listed, r"(?m)^\s+liqod\s")

    def test_plugin_options(self) -> None:
        """``twistd liqod --help`` shows the daemon's options."""
        shown = self._output("python", "-c", TWISTD, "liqod", "--help")
        self.assertIn("--config", shown)

    def test_command(self) -> None:
        """``liqodctl --version`` names the version of the package."""
        self.assertEqual(self._output("liqodctl", "--version"), f"liqodctl {released_version()}\n")

    def test_daemon_version(self) -> None:
        """``twistd liqod --version`` names the same one."""
        self.assertEqual(self._output("python", "-c", TWISTD, "liqod", "--version"), f"liqod {released_version()}\n")

    def test_kubectl_plugin(self) -> None:
        """``kubectl liqod`` runs the program ``kubectl-liqod``."""
        self.assertIn("Usage: kubectl liqod", self._output("kubectl-liqod", "--help"))

    def test_tables_of_the_commands(self) -> None:
        """The package has the table of reasons, which ``explain`` reads, and the one that completion reads."""
        self.assertIn("compare the words", self._output("liqodctl", "explain", "TrustPending"))
        environment = InstalledTests.place
        assert environment is not None
        (found,) = (environment / "environment").rglob("command_tree.json")
        self.assertIn("rotate-key", found.read_text())

    def test_files_of_the_page(self) -> None:
        """The package has what the browser loads with the page of ``liqodctl web``."""
        environment = InstalledTests.place
        assert environment is not None
        for name in STATIC:
            self.assertEqual(len(list((environment / "environment").rglob(f"web/files/{name}"))), 1, name)

    def test_installs_a_host(self) -> None:
        """The package alone has all that a host needs: configuration, units, user and completions."""
        root = Path(self.mktemp()).absolute()
        (root / "usr/lib/systemd").mkdir(parents=True)
        (root / "usr/lib/systemd/systemd").touch()
        shown = self._output("liqodctl", "install", "--host", "--dry-run", "--root", str(root))
        for name in (
            "liqod.toml",
            "liqod.service",
            "liqod-tunnel@.service",
            "sysusers.d",
            "_liqodctl",
            "kubectl-liqod",
        ):
            self.assertIn(name, shown)

    def test_old_python(self) -> None:
        """The wheel says which Python it needs, by which pip refuses others; README names the same."""
        assert InstalledTests.place is not None
        (wheel,) = InstalledTests.place.glob("liqod-*.whl")
        archive = zipfile.ZipFile(wheel)
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        self.assertIn("\nRequires-Python: >=3.11\n", archive.read(metadata).decode())
        self.assertIn("Python 3.11 or newer", (CHECKOUT / "README.md").read_text())

    def test_contents(self) -> None:
        """The wheel holds the type marker, the plugin and the resource definitions, and no tests."""
        assert InstalledTests.place is not None
        (wheel,) = InstalledTests.place.glob("liqod-*.whl")
        names = zipfile.ZipFile(wheel).namelist()
        self.assertIn("liqod/py.typed", names)
        self.assertIn("twisted/plugins/liqod_plugin.py", names)
        host = "liqod/cli/setup/host/files"
        shipped = {f"{host}/liqod.toml", *(f"{host}/systemd/{file.name}" for file in (CHECKOUT / "systemd").iterdir())}
        self.assertEqual(shipped - set(names), set())
        self.assertTrue(any(name.startswith("liqod/kube/manifests/") and name.endswith(".yaml") for name in names))
        self.assertEqual([name for name in names if name.startswith(("tests/", "benchmarks/"))], [])
        self.assertNotIn("twisted/__init__.py", names)
