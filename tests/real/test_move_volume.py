"""``liqodctl move volume`` with restic itself: from home to the lender and back, killed on its way, and gone on with.

restic is Debian's. Debian has no rest-server; rclone speaks its protocol and reads its passwords, and a script of that
name, which takes no other options than the move gives, starts it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, ClassVar, Final

from liqod.cli.workloads.move.seen import LABEL, JobName
from tests.real.manifests import pod
from tests.real.path import NAMESPACE, eventually
from tests.real.programs import images, workloads
from tests.real.programs.base import LONG, ProgramTests
from tests.real.steps import LOOP, VIRTUAL
from tests.testbed.process import CommandFailed

CLAIM: Final = "data"
MOVE: Final = ("move", "volume", CLAIM, "-n", NAMESPACE)
COPYING: Final[tuple[JobName, ...]] = ("backup", "restore")
WITHIN: Final = 600.0
"""Seconds that one run of the command may take."""
SERVER: Final = """\
#!/bin/sh
while [ $# -gt 0 ]; do
    case $1 in
        --path) path=$2 ;;
        --listen) listen=$2 ;;
        --htpasswd-file) users=$2 ;;
        *) echo "rest-server: what is $1?" >&2; exit 2 ;;
    esac
    shift 2
done
exec rclone serve restic --addr "$listen" --htpasswd "$users" "$path"
"""
FILL: Final = (
    "mkdir -p /data/a/b && dd if=/dev/urandom of=/data/a/large bs=1048576 count=16 2>/dev/null && "
    "echo one > '/data/a/b/a name' && : > /data/empty && ln -s a/large /data/link && "
    "chmod 600 /data/a/large && chown -R 70:70 /data/a"
)
"""Files of different sizes, owners and modes, one without content, and a link."""
LISTING: Final = (
    "cd /data && find . -mindepth 1 | sort | while read -r one; do stat -c '%n %a %u:%g' \"$one\"; done; "
    "find . -type l -exec readlink {} \\; ; find . -type f -exec sha256sum {} \\; | sort"
)
"""What a volume holds: names, modes and owners, where links lead, and a checksum of each file."""


class MoveVolumeTests(ProgramTests):
    """Steps in the order of their numbers, with one claim."""

    built: ClassVar[tuple[str, ...]] = ()
    packages: ClassVar[tuple[str, ...]] = ("restic", "rclone")
    disks = 5
    held: ClassVar[str] = ""
    """What the claim holds, as it was listed last."""

    def programs(self) -> dict[str, Path]:
        """Return the script that stands for the server of repositories."""
        assert self._testbed is not None
        script = self._testbed.directory / "rest-server"
        script.write_text(SERVER)
        return {"rest-server": script}

    def _furnish(self) -> None:
        super()._furnish()
        text = self.rome.config.read_text()
        named = f'restic-image = "{images.IMAGE}"\nrestic-server-image = "{images.IMAGE}"\n'
        self.rome.config.write_text(text.replace("[storage]\n", f"[storage]\n{named}"))

    def words(self, *words: str) -> tuple[str, ...]:
        """Return a command about the claim, with rome's configuration, which names the images."""
        return (*MOVE, *words, "-o", "json", f"--config={self.rome.config}")

    def move(self, *words: str) -> str:
        """Run the command to its end, and return the state that it says."""
        return str(json.loads(self.rome.liqodctl(*self.words(*words), timeout=WITHIN))["state"])

    def refused(self, reason: str, *words: str) -> None:
        """Make sure that the command is refused for a reason."""
        with self.assertRaises(CommandFailed) as caught:
            self.move(*words)
        self.assertEqual(caught.exception.code, 1)
        self.assertIn(reason, caught.exception.output)

    def killed(self, job: JobName, *words: str) -> None:
        """Run the command until a job of it is there, and end it with SIGKILL."""
        program = str(Path(sys.executable).with_name("liqodctl"))
        argv = [program, *self.words(*words), f"--kubeconfig={self.home.kubeconfig}"]
        process = self.home.spawn("move", argv)
        try:
            eventually(f"the job {job}", lambda: self.has_job(job), LONG)
            self.assertTrue(process.running, process.tail())
            os.kill(process.pid, signal.SIGKILL)
            self.assertEqual(process.wait(10.0), -signal.SIGKILL)
        finally:
            process.stop(0.0)

    def of_move(self, kind: str) -> list[dict[str, Any]]:
        """Return the objects of a kind that were made for the move."""
        return list(self.home.get(kind, "-n", NAMESPACE, "-l", LABEL)["items"])

    def has_job(self, job: JobName) -> bool:
        """Tell whether a job of the move is there."""
        return any(one["metadata"]["name"].endswith(f"-{job}") for one in self.of_move("jobs"))

    def nothing_left(self) -> bool:
        """Have nothing be left of the move but the claim, if it was made by it."""
        for kind in ("configmaps", "secrets", "services", "jobs", "pods"):
            self.assertEqual([one["metadata"]["name"] for one in self.of_move(kind)], [], kind)
        self.assertLessEqual({one["metadata"]["name"] for one in self.of_move("pvc")}, {CLAIM})
        return True

    def claims_at(self, *, lender: bool) -> int:
        """Return how many claims with data there are at milan, or at home."""
        cluster, where = (self.lender, self.remote()) if lender else (self.home, "liqo-storage")
        return len(cluster.get("pvc", "-n", where)["items"])

    def hold(self, name: str, selector: dict[str, str], claim: str = CLAIM) -> None:
        """Have a pod with a claim run where the selector says; where the data is elsewhere it never does."""
        volume = {"name": CLAIM, "persistentVolumeClaim": {"claimName": claim}}
        body = pod(name, LOOP, namespace=NAMESPACE, nodeSelector=selector, volumes=[volume])
        body["spec"]["containers"][0]["volumeMounts"] = [{"name": CLAIM, "mountPath": "/data"}]
        self.home.apply(body)
        self.runs(name)

    def listed(self, selector: dict[str, str], claim: str = CLAIM, first: str = ":") -> str:
        """Return what a claim holds, looked at by a pod where its data is to be; ``first`` is run before."""
        self.hold("look", selector, claim)
        try:
            return self.run_in("look", "sh", "-c", f"{first} && {LISTING}")
        finally:
            self.drop("pod/look")

    def uid(self) -> str:
        """Return the UID of the claim."""
        return str(self.here("pvc", CLAIM)["metadata"]["uid"])

    def copy(self) -> str:
        """Return the name of the claim with the copy."""
        (name,) = [one["metadata"]["name"] for one in self.of_move("pvc") if one["metadata"]["name"] != CLAIM]
        return str(name)

    def test_01_data(self) -> None:
        """A claim whose first pod runs at home has its data there."""
        self.begin()
        made = workloads.claim(CLAIM)
        made["metadata"]["namespace"] = NAMESPACE
        self.home.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", **made})
        type(self).held = self.listed(self.at_home, first=FILL)
        self.assertEqual(self.held.count("./a/large"), 2, self.held)
        self.assertEqual((self.claims_at(lender=False), self.claims_at(lender=True)), (1, 0))

    def test_02_in_use(self) -> None:
        """While a pod has the claim nothing is begun, and the pod is named."""
        self.hold("user", self.at_home)
        self.refused("InUse", "--to", "milan")
        self.refused("user", "--to", "milan")
        self.nothing_left()
        self.drop("pod/user")

    def test_03_copied_to_the_lender(self) -> None:
        """Killed while it is backed up, and while that is restored, the next run has the whole copy at milan.

        The original stays as it was; a pod that has it keeps the switch from being begun.
        """
        before = self.uid()
        for job in COPYING:
            self.killed(job, "--to", "milan")
        self.assertEqual(self.move("--to", "milan"), "copied")
        self.refused("AlreadyMoving", "--to", "home")
        self.assertEqual(self.listed(VIRTUAL, self.copy()), self.held)
        self.assertEqual(self.listed(self.at_home), self.held)
        self.hold("user", self.at_home)
        self.refused("InUse", "--confirm")
        self.drop("pod/user")
        self.assertEqual(self.uid(), before)

    def test_04_confirmed(self) -> None:
        """Killed when the original is gone, the next run has a claim of its name at milan, with all that it held."""
        before = self.uid()
        self.killed("refill", "--confirm")
        self.refused("TooLate", "--cancel")
        self.assertEqual(self.move("--confirm"), "moved")
        self.assertNotEqual(self.uid(), before)
        self.assertEqual(self.listed(VIRTUAL), self.held)
        eventually("nothing is left of it", self.nothing_left)
        eventually("home has no data of it", lambda: self.claims_at(lender=False) == 0)
        eventually("milan has it once", lambda: self.claims_at(lender=True) == 1)

    def test_05_given_up(self) -> None:
        """Killed on its way home and given up, nothing is left of it, and the data is at milan as it was."""
        before = self.uid()
        self.killed("restore", "--to", "home")
        self.assertEqual(self.move("--cancel"), "cancelled")
        eventually("nothing is left of it", self.nothing_left)
        self.assertEqual(self.uid(), before)
        self.assertEqual(self.listed(VIRTUAL), self.held)

    def test_06_home_again(self) -> None:
        """Killed, and its repository lost meanwhile, the next run fills another one; what came since is in it."""
        more = "echo two > /data/two && rm /data/empty"
        type(self).held = self.listed(VIRTUAL, first=more)
        self.killed("backup", "--to", "home")
        (server,) = [one["metadata"]["name"] for one in self.of_move("pods") if _serves(one)]
        self.drop(f"pod/{server}")
        self.assertEqual(self.move("--to", "home"), "copied")
        self.assertEqual(self.listed(self.at_home, self.copy()), self.held)
        self.assertEqual(self.move("--confirm"), "moved")
        self.assertEqual(self.listed(self.at_home), self.held)
        eventually("nothing is left of it", self.nothing_left)
        eventually("milan has no data of it", lambda: self.claims_at(lender=True) == 0)


def _serves(body: dict[str, Any]) -> bool:
    """Tell whether a pod of the move is the one that serves the repository."""
    return bool(body["metadata"]["labels"].get("app") == "repository")
