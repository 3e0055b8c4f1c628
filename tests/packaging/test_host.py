"""``liqodctl install --host`` and ``uninstall --host`` on a temporary root directory, with real files and programs."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options
from liqod.cli.console.session import Output
from liqod.cli.main import cli
from liqod.cli.setup.host import apply
from liqod.cli.setup.host.commands import install_host, planned, uninstall_host
from liqod.cli.setup.host.wanted import RECEIPT
from tests.environment import require

ACCOUNTS = {
    "passwd": "root:x:0:0:root:/root:/bin/sh\n",
    "group": "root:x:0:\n",
    "shadow": "root:*:1::::::\n",
    "gshadow": "root:*::\n",
}
NOT_COMPARED = ("passwd-", "group-", "shadow-", "gshadow-", ".pwd.lock")
"""Backups and the lock of passwd(5), which every program that changes users leaves behind."""
OPT = "/opt/liqod"
NOBODY = 65534


def bare_root(root: Path) -> Path:
    """Make a root directory with what a bare Debian has of the files that matter; skips the test without root."""
    require("" if os.geteuid() == 0 else "creating users in a root directory needs root")
    require("" if shutil.which("systemd-sysusers") and shutil.which("userdel") else "no systemd-sysusers, or userdel")
    for directory in ("etc/systemd/system", "etc/polkit-1/rules.d", "usr/lib/systemd", "usr/local/bin"):
        (root / directory).mkdir(parents=True)
    (root / "usr/lib/systemd/systemd").touch()
    for name, text in ACCOUNTS.items():
        (root / "etc" / name).write_text(text)
    return root


def listing_of(root: Path) -> dict[str, tuple[int, str]]:
    """Return mode and content of everything in a directory."""
    found = {}
    for path in sorted(root.rglob("*")):
        if path.name not in NOT_COMPARED:
            content = str(path.readlink()) if path.is_symlink() else path.read_text() if path.is_file() else ""
            found[str(path.relative_to(root))] = (path.lstat().st_mode, content)
    return found


def as_nobody(call: Callable[[], object]) -> str:
    """Call in a process of a user without rights; return why it was refused, or that it was not."""

    def run() -> tuple[int, str]:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        try:
            call()
        except CliError as error:
            return 0, error.message
        return 0, "not refused"

    return forked(run)[1]


def killed_at(number: int, call: Callable[[], object]) -> bool:
    """Run in a process that is killed when it renames the file with a number from 0; False: it has not so many."""

    def run() -> tuple[int, str]:
        left = [number]
        replace = os.replace

        def counted(*words: Any, **named: Any) -> None:
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            replace(*words, **named)

        os.replace = counted
        call()
        return 0, ""

    return forked(run)[0] == -signal.SIGKILL


def forked(call: Callable[[], tuple[int, str]]) -> tuple[int, str]:
    """Call in a child of this process; return what it returns, or how it was killed as a negative number."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code, said = 99, ""
        try:
            code, said = call()
        except BaseException as error:
            said = repr(error)
        finally:
            os.write(writing, said.encode())
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as file:
        said = file.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


class HostCase(SynchronousTestCase):
    """A bare root directory."""

    def setUp(self) -> None:
        self.root = bare_root(Path(self.mktemp()).absolute())

    def listing(self) -> dict[str, tuple[int, str]]:
        """Return mode and content of everything in the root directory."""
        return listing_of(self.root)

    def install(self, *roles: str, dry_run: bool = False) -> None:
        """Install with the environment of the packages."""
        install_host(Output(Options()), cli, roles or ("all",), root=self.root, dry_run=dry_run, prefix=OPT)

    def run_command(self, *words: str) -> Result:
        """Run a command of ``liqodctl`` on the root directory."""
        return CliRunner().invoke(cli, [*words, "--root", str(self.root)])


class InstallTests(HostCase):
    def test_before_and_after(self) -> None:
        """After installing and uninstalling everything is as it was, users and directories too."""
        before = self.listing()
        self.assertEqual(self.run_command("install", "--host").exit_code, 0)
        self.assertNotEqual(self.listing(), before)
        self.assertEqual(self.run_command("uninstall", "--host").exit_code, 0)
        self.assertEqual(self.listing(), before)

    def test_after_the_service_ran(self) -> None:
        """With the users that were created goes what their processes had; what was another's stays."""
        for directory in ("var/lib/other", "etc/liqod"):
            (self.root / directory).mkdir(parents=True)
        (self.root / "etc/liqod/other.kubeconfig").touch()
        before = self.listing()
        self.install()
        for path in ("var/lib/liqod", "var/lib/liqod-network"):
            (self.root / path).mkdir()
            (self.root / path / "home.token").write_text("secret")
        (self.root / "etc/liqod/kubeconfig").write_text("token: secret")
        said = self.run_command("uninstall", "--host", "--dry-run").output
        self.assertIn("would remove /var/lib/liqod\n", said)
        self.assertEqual(self.run_command("uninstall", "--host").exit_code, 0)
        left = {path for path in self.listing() if path not in before}
        # No process of another role was installed here.
        self.assertEqual(left, {"var/lib/liqod-network", "var/lib/liqod-network/home.token"})

    def test_what_is_installed(self) -> None:
        """The configuration, units that name the environment, the polkit rule, the user, completions and programs."""
        self.install()
        unit = (self.root / "etc/systemd/system/liqod.service").read_text()
        self.assertIn("ExecStart=/opt/liqod/bin/twistd -n liqod", unit)
        self.assertIn("[kubernetes]", (self.root / "etc/liqod/liqod.toml").read_text())
        self.assertIn("polkit.addRule", (self.root / "etc/polkit-1/rules.d/liqod-tunnel.rules").read_text())
        self.assertIn("liqod:x:", (self.root / "etc/passwd").read_text())
        self.assertIn("_LIQODCTL_COMPLETE", (self.root / "etc/bash_completion.d/liqodctl").read_text())
        self.assertEqual(os.readlink(self.root / "usr/local/bin/kubectl-liqod"), "/opt/liqod/bin/kubectl-liqod")
        self.assertEqual(stat.S_IMODE((self.root / RECEIPT.lstrip("/")).stat().st_mode), 0o644)

    def test_umask(self) -> None:
        """Whatever the administrator's umask is, the daemon's user may enter each directory that was made."""
        shutil.rmtree(self.root / "etc/systemd")
        before = os.umask(0o077)
        try:
            self.install()
        finally:
            os.umask(before)
        for directory in ("etc/liqod", "etc/systemd", "etc/systemd/system", "etc/sysusers.d"):
            self.assertEqual(stat.S_IMODE((self.root / directory).stat().st_mode), 0o755, directory)

    def test_umask_of_others(self) -> None:
        """A directory that was there before keeps its mode, at each run."""
        (self.root / "etc/liqod").mkdir(mode=0o750)
        for _ in range(2):
            self.install()
            self.assertEqual(stat.S_IMODE((self.root / "etc/liqod").stat().st_mode), 0o750)

    def test_other_environment(self) -> None:
        """The unit names the environment that was installed from."""
        install_host(Output(Options()), cli, root=self.root, dry_run=False, prefix="/srv/elsewhere")
        unit = (self.root / "etc/systemd/system/liqod.service").read_text()
        self.assertIn("ExecStart=/srv/elsewhere/bin/twistd ", unit)
        self.assertNotIn("/opt/liqod/", unit)

    def test_dry_run(self) -> None:
        """--dry-run shows every file and changes nothing; so does that of the removal."""
        before = self.listing()
        shown = self.run_command("install", "--host", "--dry-run").output
        self.assertEqual(self.listing(), before)
        self.install()
        after = self.listing()
        for path in set(after) - set(before) - {RECEIPT.lstrip("/")}:
            if not (self.root / path).is_dir():
                self.assertIn(f"would write /{path}\n", shown)
        self.assertIn("would remove /etc/liqod/liqod.toml", self.run_command("uninstall", "--host", "--dry-run").output)
        self.assertEqual(self.listing(), after)

    def test_again(self) -> None:
        """A second run writes nothing at all."""
        self.install()
        unit = self.root / "etc/systemd/system/liqod.service"
        before, stamp = self.listing(), unit.stat().st_mtime_ns
        self.install()
        self.assertEqual((self.listing(), unit.stat().st_mtime_ns), (before, stamp))

    def test_without_polkit(self) -> None:
        """Without polkit there is no rule, and no directory for it."""
        shutil.rmtree(self.root / "etc/polkit-1")
        self.install()
        self.assertFalse((self.root / "etc/polkit-1").exists())

    def test_changed_configuration(self) -> None:
        """A configuration that was changed survives a second installation and the removal."""
        self.install()
        configuration = self.root / "etc/liqod/liqod.toml"
        configuration.write_text('[cluster]\nname = "rome"\n')
        self.install()
        uninstall_host(Output(Options()), root=self.root, dry_run=False)
        self.assertEqual(configuration.read_text(), '[cluster]\nname = "rome"\n')
        self.assertEqual([path.name for path in configuration.parent.iterdir()], ["liqod.toml"])

    def test_existing_configuration(self) -> None:
        """A configuration that was there before is kept, and is not ours to remove."""
        (self.root / "etc/liqod").mkdir()
        configuration = self.root / "etc/liqod/liqod.toml"
        configuration.write_text("# mine\n")
        before = self.listing()
        self.install()
        uninstall_host(Output(Options()), root=self.root, dry_run=False)
        self.assertEqual(self.listing(), before)

    def test_existing_user(self) -> None:
        """A system user that was there before is used, and stays."""
        with (self.root / "etc/passwd").open("a") as file:
            file.write(
                "liqod:x:200:200::/var/lib/liqod:/usr/sbin/nologin\n"
                "liqod-network:x:201:201::/var/lib/liqod-network:/usr/sbin/nologin\n"
                "liqod-names:x:202:202::/var/lib/liqod-names:/usr/sbin/nologin\n"
            )
        before = self.listing()
        self.install()
        uninstall_host(Output(Options()), root=self.root, dry_run=False)
        self.assertEqual(self.listing(), before)


class RoleTests(HostCase):
    """Which units and users a host gets."""

    def found(self) -> tuple[set[str], set[str]]:
        """Return the units and the users of the root directory."""
        units = {path.name for path in (self.root / "etc/systemd/system").iterdir()}
        users = {line.split(":")[0] for line in (self.root / "etc/passwd").read_text().splitlines()}
        return units, users - {"root"}

    def test_each(self) -> None:
        """A role has its own unit and user, and the tunnel's unit only what changes the network."""
        before = self.listing()
        for role, units, user in (
            ("all", {"liqod.service", "liqod-tunnel@.service"}, "liqod"),
            ("control", {"liqod-control.service"}, "liqod"),
            ("network", {"liqod-network.service", "liqod-network-tunnel@.service"}, "liqod-network"),
            ("names", {"liqod-names.service"}, "liqod-names"),
        ):
            self.assertEqual(self.run_command("install", "--host", "--role", role).exit_code, 0)
            self.assertEqual(self.found(), (units, {user}), role)
            rule = self.root / "etc/polkit-1/rules.d/liqod-tunnel.rules"
            tunnels = [name for name in units if "tunnel" in name]
            self.assertEqual(rule.exists(), bool(tunnels))
            for name in tunnels:
                tunnel = (self.root / "etc/systemd/system" / name).read_text()
                self.assertIn(f"User={user}\nGroup={user}\n", tunnel)
            self.assertEqual(self.run_command("uninstall", "--host").exit_code, 0)
            self.assertEqual(self.listing(), before)

    def test_of_configuration(self) -> None:
        """Without --role it is that of the host's own configuration."""
        (self.root / "etc/liqod").mkdir()
        (self.root / "etc/liqod/liqod.toml").write_text('[daemon]\nrole = "control"\n')
        self.assertEqual(self.run_command("install", "--host").exit_code, 0)
        self.assertEqual(self.found(), ({"liqod-control.service"}, {"liqod"}))

    def test_a_node(self) -> None:
        """What only leads a host's pods to the gateway is its network agent; a unit that it runs as since stays."""
        (self.root / "etc/liqod").mkdir()
        (self.root / "etc/liqod/liqod.toml").write_text('[network]\nrole = "node"\n')
        self.assertEqual(self.run_command("install", "--host").exit_code, 0)
        self.assertEqual(self.found()[1], {"liqod-network"})
        self.assertFalse((self.root / "etc/systemd/system/liqod.service").exists())
        self.assertEqual(self.run_command("uninstall", "--host").exit_code, 0)
        self.assertEqual(self.run_command("install", "--host", "--role", "all").exit_code, 0)
        self.assertEqual(self.run_command("install", "--host").exit_code, 0)
        self.assertEqual(self.found()[1], {"liqod"})

    def test_one_more(self) -> None:
        """A role that is added leaves the others, and an upgrade knows of all of them."""
        before = self.listing()
        self.install("control")
        self.install("network")
        self.assertEqual(
            self.found(),
            (
                {"liqod-control.service", "liqod-network.service", "liqod-network-tunnel@.service"},
                {"liqod", "liqod-network"},
            ),
        )
        after = self.listing()
        self.install("control")
        self.assertEqual(self.listing(), after)
        uninstall_host(Output(Options()), root=self.root, dry_run=False)
        self.assertEqual(self.listing(), before)

    def test_excluding(self) -> None:
        """Roles that exclude each other are wrong usage."""
        self.assertEqual(self.run_command("install", "--host", "--role=all", "--role=control").exit_code, 2)


class InterruptedTests(HostCase):
    def test_killed(self) -> None:
        """One that is killed at any of its files is completed by the next one, and can be taken back as well."""
        before = self.listing()
        self.install()
        complete = self.listing()
        uninstall_host(Output(Options()), root=self.root, dry_run=False)
        places = 0
        while killed_at(places, self.install):
            self.install()
            self.assertEqual(self.listing(), complete, places)
            uninstall_host(Output(Options()), root=self.root, dry_run=False)
            self.assertEqual(self.listing(), before, places)
            killed_at(places, self.install)
            uninstall_host(Output(Options()), root=self.root, dry_run=False)
            self.assertEqual(self.listing(), before, places)
            places += 1
        self.assertGreater(places, 10)
        uninstall_host(Output(Options()), root=self.root, dry_run=False)

    def test_resumed(self) -> None:
        """An installation that ended in the middle is completed by the next, or taken back."""
        before = self.listing()
        self.install()
        complete = self.listing()
        for name in ("etc/systemd/system/liqod.service", "usr/local/bin/liqodctl"):
            (self.root / name).unlink()
        (self.root / "etc/systemd/system/.liqod.service.liqod-new").write_text("half a un")
        self.install()
        self.assertEqual(self.listing(), complete)
        (self.root / "usr/local/bin/.liqodctl.liqod-new").symlink_to("nowhere")
        (self.root / "usr/local/bin/liqodctl").unlink()
        uninstall_host(Output(Options()), root=self.root, dry_run=False)
        self.assertEqual(self.listing(), before)

    def test_removal_without_installation(self) -> None:
        """Where nothing was installed nothing is removed."""
        before = self.listing()
        self.assertIn("nothing to remove", self.run_command("uninstall", "--host").output)
        self.assertEqual(self.listing(), before)


class RefusalTests(HostCase):
    """What is in the way is said before anything was changed."""

    def assert_refused(self, reason: str) -> None:
        before = self.listing()
        with self.assertRaises(CliError) as caught:
            self.install()
        self.assertRegex(caught.exception.message, reason)
        self.assertEqual(self.listing(), before)

    def test_foreign_unit(self) -> None:
        """A unit of that name that this command did not write."""
        (self.root / "etc/systemd/system/liqod.service").write_text("[Service]\nExecStart=/bin/true\n")
        self.assert_refused("liqod.service exists, and was not written by this command; move it away")

    def test_changed_unit(self) -> None:
        """A unit that was changed, after an installation."""
        self.install()
        with (self.root / "etc/systemd/system/liqod.service").open("a") as file:
            file.write("Nice=5\n")
        self.assert_refused("liqod.service was changed; move it away .*drop-in")

    def test_directory(self) -> None:
        """A directory where a file belongs."""
        (self.root / "etc/liqod/liqod.toml").mkdir(parents=True)
        self.assert_refused("liqod.toml exists")

    def test_user_who_may_log_in(self) -> None:
        """A person's account of that name."""
        with (self.root / "etc/passwd").open("a") as file:
            file.write("liqod:x:1001:1001::/var/lib/liqod:/bin/bash\n")
        self.assert_refused("there is a user liqod who may log in")

    def test_not_root(self) -> None:
        """A user who is not root: on this host it says who has to run it, elsewhere which directories are closed."""
        require("" if os.geteuid() == 0 else "to become another user takes root")
        self.patch(os, "geteuid", lambda: NOBODY)
        _, plan = planned(cli, self.root, OPT, ["all"])
        with_systemd = any(Path("/", place).exists() for place in apply.SYSTEMD)
        wanted = "only root may install" if with_systemd else "there is no systemd here"
        self.assertIn(wanted, "".join(apply.preflight(Path("/"), OPT, plan)))
        # The directories of tests are closed to others.
        place = Path(tempfile.mkdtemp(dir="/var/tmp"))
        self.addCleanup(shutil.rmtree, place)
        place.chmod(0o755)
        self.root = Path(shutil.move(self.root, place / "root"))
        before = self.listing()
        self.assertIn(f"{self.root}/etc cannot be written: no rights", as_nobody(self.install))
        self.assertEqual(self.listing(), before)

    def test_read_only(self) -> None:
        """A file system that is mounted read-only, for all of the host or for a part."""
        unshare = ["unshare", "--mount", "--propagation=private"]
        possible = subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode == 0
        require("" if possible else "mounting a directory read-only needs a mount namespace")
        before = self.listing()
        for part, named in (("", "etc"), ("usr/local", "usr/local/bin")):
            place = self.root / part
            script = f'mount --bind {place} {place} && mount -o remount,bind,ro {place} && exec "$@"'
            words = [sys.executable, "-m", "liqod.cli", "install", "--host", "--root", str(self.root)]
            done = subprocess.run(
                [*unshare, "sh", "-c", script, "sh", *words], capture_output=True, text=True, check=False
            )
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(f"{self.root / named} cannot be written: the file system is read-only", done.stderr)
            self.assertIn("nothing was changed", done.stderr)
            self.assertEqual(self.listing(), before)

    def test_no_systemd(self) -> None:
        """A host without systemd."""
        (self.root / "usr/lib/systemd/systemd").unlink()
        self.assert_refused("no systemd")

    def test_way_out(self) -> None:
        """A symbolic link that leads out of the root directory is not followed."""
        outside = Path(self.mktemp()).absolute()
        outside.mkdir()
        (self.root / "etc/systemd/system").rmdir()
        (self.root / "etc/systemd/system").symlink_to(outside)
        self.assert_refused("leads out of")
        self.assertEqual(list(outside.iterdir()), [])

    def test_damaged_receipt(self) -> None:
        """A receipt that cannot be read is named."""
        (self.root / "etc/liqod").mkdir()
        (self.root / RECEIPT.lstrip("/")).write_text('{"entries": []}')
        self.assert_refused("host-installation.json is damaged")

    def test_options(self) -> None:
        """Options that need --host are refused without it."""
        for words in (
            ["install", "--dry-run"],
            ["install", "--role", "names"],
            ["uninstall", "--root", str(self.root)],
        ):
            result = CliRunner().invoke(cli, words)
            self.assertEqual(result.exit_code, 2)
            self.assertIn("needs --host", result.output)
