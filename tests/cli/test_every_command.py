"""What holds for every command of ``liqodctl``: each test runs over the whole tree of commands."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
import yaml
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.account.names import LEASE
from liqod.agent.account.objects import bound_secret
from liqod.cli.main import COMMANDS, cli
from liqod.identity.certs import generate
from liqod.identity.fingerprint_words import words
from liqod.identity.store import to_secret
from liqod.kube import manifests
from liqod.kube.resources import ADVERTISEMENTS, FOREIGNCLUSTERS, LEASES, NAMESPACES, NODES, PODS, SECRETS, VIRTUALNODES
from liqod.model.ids import ClusterID
from tests.cli.cluster_case import REACTOR, ClusterCase
from tests.cli.console import write_command_tree
from tests.cli.fork_server import ROOT

KEY = generate(ClusterID("c2"), datetime.now(UTC)).fingerprint
ESCAPE = "\x1b"
HOME = "\x1b[H"
"""What a view that is shown again begins with."""


def leaves(group: click.Group = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command that is no group, with its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        else:
            yield (*path, name), command


RUNS: dict[tuple[str, ...], list[str]] = {
    ("status",): [],
    ("discover",): [],
    ("facts",): [],
    ("explain",): ["web"],
    ("check",): [],
    ("doctor",): [],
    ("usage",): [],
    ("web",): ["--for=0.1"],
    ("gather",): ["--file=GATHERED"],
    ("who-has",): ["secret/key"],
    ("demo",): [],
    ("peer",): ["127.0.0.1:1"],
    ("token", "create"): ["--address=192.0.2.1"],
    ("token", "list"): [],
    ("token", "revoke"): ["0a1b"],
    ("trust",): ["milan", "--yes"],
    ("accept",): ["milan"],
    ("refuse",): ["milan"],
    ("confirm-deletions",): ["milan"],
    ("node", "create"): ["milan", "--name=milan-gpu", "--limit=cpu=2", "--taint=example.com/gpu:NoSchedule"],
    ("node", "list"): [],
    ("node", "delete"): ["milan-gpu"],
    ("slice", "create"): ["milan", "--name=milan-slice", "--amount=cpu=1", "--label=pool=a"],
    ("slice", "list"): [],
    ("slice", "remove"): ["milan-slice"],
    ("cordon",): ["milan"],
    ("uncordon",): ["milan"],
    ("drain",): ["milan", "--force", "--timeout=5"],
    ("move", "volume"): ["data", "--to=milan"],
    ("offload", "namespace"): ["shop"],
    ("unoffload", "namespace"): ["shop"],
    ("tenant", "show"): ["milan"],
    ("reclaim",): ["milan"],
    ("dns-records",): ["example.com", "--address=192.0.2.1"],
    ("rotate-key",): ["--timeout=0.1"],
    ("rotate-tunnel-key",): [],
    ("plan",): [],
    ("netcheck",): ["milan", "--count=1"],
    ("ping",): ["milan", "--count=1"],
    ("test",): ["milan", "--timeout=1", "--only=pod"],
    ("bench",): ["milan", "latency", "--timeout=1"],
    ("distrust",): ["milan", "--yes"],
    ("unpeer",): ["milan", "--yes"],
    ("up",): ["--root=ROOT", "--yes"],
    ("down",): ["--root=ROOT", "--yes", "--force"],
    ("install",): [],
    ("version",): [],
    ("completion",): ["bash"],
    ("uninstall",): ["--yes", "--force"],
}
"""How each command is run, in an order in which one leaves what the next ones need."""
FAILING = {
    ("peer",),
    ("unpeer",),
    ("token", "revoke"),
    ("rotate-key",),
    ("rotate-tunnel-key",),
    ("netcheck",),
    ("ping",),
    ("test",),
    ("bench",),
    ("move", "volume"),
    ("check",),
    ("doctor",),
    ("facts",),
    # What the kernel has, only root may see.
    *([("plan",)] if os.geteuid() else []),
}
"""Commands that fail against a simulated cluster without a daemon."""


class TreeTests(SynchronousTestCase):
    """What every command declares."""

    def test_runs_of_all(self) -> None:
        """Every command is run below."""
        self.assertEqual({path for path, _ in leaves()} - set(RUNS), set())

    def test_output_option(self) -> None:
        """Every command has -o with json and yaml."""
        for path, command in leaves():
            option = next((one for one in command.params if one.name == "output"), None)
            assert option is not None and isinstance(option.type, click.Choice), path
            self.assertLessEqual({"json", "yaml", "table", "wide"}, set(option.type.choices), path)

    def test_help(self) -> None:
        """Every help has an example that names the command, fits 80 columns and is not cut."""
        for path, command in leaves():
            context = click.Context(command, info_name=f"liqodctl {' '.join(path)}", terminal_width=80)
            text = command.get_help(context)
            self.assertRegex(text, rf"Examples?:\n(.*\n)* +.*liqodctl {' '.join(path)}", path)
            self.assertNotRegex(text, r"(?m)[a-z]\.\.\.$", path)
            self.assertEqual([line for line in text.splitlines() if len(line) > 80], [], path)

    def test_short_help(self) -> None:
        """The help of a command in the list is short enough to stand in one line."""
        for section in COMMANDS.values():
            for name, (_, text) in section.items():
                self.assertLessEqual(len(text), 45, name)
                self.assertTrue(text[0].isupper() and not text.endswith("."), name)

    def test_command_tree(self) -> None:
        """Completion knows the commands and options as they are."""
        self.assertEqual(
            write_command_tree.FILE.read_text(),
            write_command_tree.text(),
            "run python -m tests.cli.console.write_command_tree",
        )

    def test_questions(self) -> None:
        """A command that can be made not to ask has the same option for it."""
        asking = {path for path, command in leaves() if any(one.name == "yes" for one in command.params)}
        self.assertEqual(asking, {("trust",), ("distrust",), ("unpeer",), ("uninstall",), ("up",), ("down",)})


class EveryCase(ClusterCase):
    """A cluster of the sandbox with one peer, and a host on which ``up`` can be carried out."""

    timeout = 300

    async def setUp(self) -> None:  # type: ignore[override]
        await super().setUp()
        self.root = Path(self.mktemp()).absolute()
        for directory in ("etc", "usr/lib/systemd", "usr/local/bin"):
            (self.root / directory).mkdir(parents=True)
        (self.root / "usr/lib/systemd/systemd").touch()
        (self.root / "etc/passwd").write_text("liqod:x:200:200::/var/lib/liqod:/usr/sbin/nologin\n")
        await manifests.ensure(self.client)
        await self.populate()

    async def populate(self) -> None:
        create = self.client.create
        for name in ("liqo-system", "shop", "liqo-tenant-c2"):
            await create(NAMESPACES, {"metadata": {"name": name}})
        key = to_secret(generate(ClusterID("rome-id"), datetime.now(UTC)))
        await create(SECRETS, {"metadata": {"name": "liqod-identity"}, "data": key}, "liqo-system")
        await create(FOREIGNCLUSTERS, {"metadata": {"name": "c2"}, "spec": {"clusterID": "c2", "fingerprint": KEY}})
        hostile = f"{ESCAPE}[31mevil{ESCAPE}]0;title\x07 [red]markup[/]"
        seen = {"seenFingerprint": KEY, "words": words(KEY), "clusterName": "milan"}
        status = {**seen, "phase": "Suspect", "reason": "SessionBroken", "message": hostile}
        await self.client.patch(FOREIGNCLUSTERS, "c2", {"status": status}, subresource="status")
        offer = {"clusterID": "c2", "offer": {"resources": {"cpu": "2"}}}
        await create(ADVERTISEMENTS, {"metadata": {"name": "advertisement-c2"}, "spec": offer})
        record = {"metadata": {"name": "c2"}, "spec": {"clusterID": "c2", "nodeName": "liqo-milan"}}
        await create(VIRTUALNODES, record, "liqo-tenant-c2")
        labels = {"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": "c2"}
        await create(NODES, {"metadata": {"name": "liqo-milan", "labels": labels}})
        spec = {"nodeName": "liqo-milan", "containers": [{"name": "main", "image": "x"}]}
        await create(PODS, {"metadata": {"name": "web"}, "spec": spec}, "default")
        held = {"status": {"deletionsObservation": "0a1b2c"}}
        await self.client.patch(VIRTUALNODES, "c2", held, "liqo-tenant-c2", subresource="status", view=None)
        await create(SECRETS, {"metadata": {"name": "key"}, "data": {}}, "default")
        await create(SECRETS, bound_secret("liqo-system", "liqod"), "liqo-system")

    def named(self, words: list[str]) -> list[str]:
        """Return the words of a run with the files of this test in them."""
        gathered = str(self.kubeconfig) + ".tar.gz"
        return [word.replace("GATHERED", gathered).replace("ROOT", str(self.root)) for word in words]


class DocumentTests(EveryCase):
    """Output for programs."""

    async def test_json(self) -> None:
        """With -o json every command prints one document, also one that fails, wherever the option stands."""
        for number, (path, more) in enumerate(RUNS.items()):
            if path not in {one for one, _ in leaves()}:
                continue
            more = self.named(more)
            argv = ["-o", "json", *path, *more] if number % 2 else [*path, *more, "--output=json"]
            out, err, status = await self.outcome(*argv)
            self.assertNotIn("Traceback", err, path)
            self.assertNotIn("LQ9001", err, path)
            if path in FAILING:
                self.assertEqual(status, 1, (path, err))
                self.assertIn("LQ", err, path)
            else:
                self.assertEqual(status, 0, (path, err))
            json.loads(out)

    async def test_failures(self) -> None:
        """A command that fails gives programs the code, the message and the hint that it says to people, once."""
        for argv, code, status in (
            (["status", "nobody"], "LQ2001", 1),
            (["status", "--context=nowhere"], "LQ1002", 1),
            (["offload", "namespace", "nowhere", "--dry-run"], "LQ2101", 1),
            (["who-has", "nonsense"], "LQ1007", 2),
            (["status", "--watch"], "LQ1001", 2),
            (["status", "--nonsense"], "LQ1001", 2),
            (["nonsense"], "LQ1001", 2),
        ):
            for line in ([*argv, "-o", "json"], ["--output=yaml", *argv], ["-oyaml", *argv]):
                out, err, found = await self.outcome(*line)
                self.assertEqual(found, status, (line, err))
                document = json.loads(out) if "json" in line else yaml.safe_load(out)
                self.assertEqual((set(document), document["code"]), ({"code", "message", "hint"}, code), line)
                self.assertIn(document["message"][:20], " ".join(err.split()), line)
        self.assertEqual((await self.outcome("status", "nobody"))[0], "")
        out, err, status = await self.outcome("check", "-o", "json")
        self.assertEqual((status, type(json.loads(out))), (1, list), "it has its document already")
        self.assertIn("LQ6001", err)

    async def test_yaml(self) -> None:
        """With -o yaml a command prints the same as YAML."""
        for argv in (["status"], ["discover"], ["check"], ["explain", "web"], ["version"]):
            as_json, _, _ = await self.outcome(*argv, "-o", "json")
            as_yaml, _, _ = await self.outcome(*argv, "-o", "yaml")
            if argv != ["check"]:
                self.assertEqual(yaml.safe_load(as_yaml), json.loads(as_json), argv)


class TerminalTests(EveryCase):
    """Output for people."""

    READING = (
        ["status"],
        ["status", "milan"],
        ["discover"],
        ["explain", "web"],
        ["check"],
        ["token", "list"],
        ["usage"],
    )

    async def test_any_width(self) -> None:
        """No line is wider than the terminal, and escape sequences of a peer are not obeyed."""
        for argv in self.READING:
            for columns in (80, 60, 40):
                out, _, _ = await self.outcome(*argv, tty=columns, env={"NO_COLOR": "1"})
                self.assertNotIn(ESCAPE, out.replace(f"\r{ESCAPE}[K", ""), argv)
                wide = [line for line in out.splitlines() if len(line) > columns and " " in line.strip()]
                self.assertEqual(wide, [], (argv, columns))

    async def test_colors(self) -> None:
        """A terminal gets colours, a pipe and NO_COLOR get none."""
        out, _, _ = await self.outcome("status", tty=80)
        self.assertIn(f"{ESCAPE}[31m", out)
        self.assertNotIn("\x07", out)
        for argv in self.READING:
            out, err, _ = await self.outcome(*argv)
            self.assertNotIn(ESCAPE, out + err, argv)

    async def test_pipe(self) -> None:
        """A pipe gets the same however wide the terminal is said to be, and an odd $COLUMNS does no harm."""
        for argv in self.READING[:4]:
            plain, _, status = await self.outcome(*argv)
            for columns in ("0", "20", "abc", "-1"):
                self.assertEqual((await self.outcome(*argv, env={"COLUMNS": columns}))[0::2], (plain, status), argv)
                out, _, _ = await self.outcome(*argv, tty=80, env={"COLUMNS": columns})
                self.assertIn("milan", out) if argv[0] != "explain" else self.assertIn("liqo-milan", out)

    async def test_ascii(self) -> None:
        """A locale without Unicode gets replacements instead of an error, and JSON loses nothing."""
        for argv in self.READING:
            out, err, _ = await self.outcome(*argv, encoding="ascii")
            self.assertTrue((out + err).isascii(), argv)
            self.assertNotIn("LQ9001", err, argv)
        out, _, _ = await self.outcome("status", "-o", "json", encoding="ascii")
        self.assertIn("evil", json.loads(out)["peers"][0]["why"])

    async def test_closed_pipe(self) -> None:
        """A reader that went away ends a command with 141, without a word."""
        for argv in (["--help"], ["version"], *self.READING):
            _, err, status = await self.outcome(*argv, closed=True)
            self.assertEqual((status, re.sub(r"LQ6001.*\n.*\n", "", err)), (141, ""), argv)


class InterruptTests(EveryCase):
    """Ctrl-C."""

    async def test_question(self) -> None:
        """Ctrl-C at a question ends the command at once with 130, and nothing was changed."""
        for path, command in leaves():
            if not any(one.name == "yes" for one in command.params):
                continue
            argv = [word for word in (*path, *self.named(RUNS[path])) if word != "--yes"]
            pin = "" if path == ("trust",) else KEY
            await self.client.patch(FOREIGNCLUSTERS, "c2", {"spec": {"fingerprint": pin}})
            before = self.cluster.store.version
            out, _, status = await self.outcome(*argv, tty=80, expect="[y/N]", send="\x03")
            self.assertEqual(status, 130, (path, out))
            self.assertIn("interrupted", out)
            self.assertNotIn("Traceback", out)
            self.assertEqual(self.cluster.store.version, before, path)
            out, _, status = await self.outcome(*argv, tty=80, expect="[y/N]", send="\x04")
            self.assertEqual(status, 1, (path, out))
            self.assertIn("LQ2006", out)

    async def test_answer_that_is_no_text(self) -> None:
        """Bytes that are no text in this locale are a no."""
        await self.client.patch(FOREIGNCLUSTERS, "c2", {"spec": {"fingerprint": ""}})
        out, _, status = await self.outcome("trust", "milan", tty=80, encoding="ascii", expect="[y/N]", send="ÿ\n")
        self.assertEqual(status, 1, out)
        self.assertIn("LQ2006", out)

    async def test_wait(self) -> None:
        """Ctrl-C while a command waits ends it with 130."""
        for argv in (["trust", "milan", "--yes", "--wait"], ["accept", "milan", "--wait"], ["status", "--watch"]):
            text = "daemon" if argv[0] == "status" else "waiting for"
            out, err, status = await self.outcome(*argv, tty=80, expect=text, signal=int(signal.SIGINT))
            self.assertEqual(status, 130, (argv, out, err))

    async def test_a_view_that_stays(self) -> None:
        """What is shown again and again is replaced once it was read again: without an answer it stays."""
        nowhere = self.kubeconfig.with_name("nowhere")
        nowhere.write_text(re.sub(r"https?://[^\s\"',]+", "https://127.0.0.1:1", self.kubeconfig.read_text()))
        out, err, status = await self.outcome("status", "--watch", tty=80, env={"KUBECONFIG": str(nowhere)})
        self.assertNotEqual(status, 0, (out, err))
        self.assertIn("127.0.0.1:1", out + err)
        self.assertNotIn(HOME, out)
        out, _, _ = await self.outcome("status", "--watch", tty=80, expect="daemon", signal=int(signal.SIGINT))
        self.assertIn(HOME, out)
        self.assertNotIn("\x1b[3J", out, "what scrolled away is the user's")

    async def test_pods(self) -> None:
        """Ctrl-C and SIGTERM while pods are tested remove their namespace, with 130 as the status."""
        spec = {"holderIdentity": "one", "renewTime": datetime.now(UTC).isoformat(), "leaseDurationSeconds": 3600}
        await self.client.create(LEASES, {"metadata": {"name": LEASE}, "spec": spec}, "liqo-system")
        ready = {"status": {"phase": "Ready", "reason": "", "message": ""}}
        await self.client.patch(FOREIGNCLUSTERS, "c2", ready, subresource="status")
        up = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await self.client.patch(NODES, "liqo-milan", up, subresource="status")
        before = {one["metadata"]["name"] for one in (await self.client.list(NAMESPACES)).items}
        for number in (signal.SIGINT, signal.SIGTERM):
            seen = self.cluster.store.version
            argv = ("bench", "milan", "latency", "--timeout=60")
            out, err, status = await self.outcome(*argv, tty=80, expect="waiting for the pod", signal=int(number))
            self.assertEqual(status, 130, (number, out, err))
            self.assertGreater(self.cluster.store.version, seen, out)
            left = {one["metadata"]["name"] for one in (await self.client.list(NAMESPACES)).items}
            self.assertEqual(left, before, number)


class CompletionTests(EveryCase):
    """What a shell offers after TAB."""

    async def complete(self, line: str, shell: str = "bash") -> list[str]:
        """Return what is offered for the last word of a line."""
        words = line.split(" ")
        environ = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_LIQODCTL_COMPLETE": f"{shell}_complete"}
        if shell == "fish":
            environ["COMP_CWORD"] = words[-1]
        out, err, status = await self.outcome(env=environ)
        self.assertEqual((err, status), ("", 0), line)
        return [one for one in out.splitlines() if one]

    async def test_commands_and_options(self) -> None:
        """Commands, their options and the values of options are offered, in every shell."""
        self.assertEqual(
            await self.complete("liqodctl un"), ["plain,uncordon", "plain,uninstall", "plain,unoffload", "plain,unpeer"]
        )
        self.assertEqual(await self.complete("liqodctl token cr"), ["plain,create"])
        self.assertEqual(await self.complete("liqodctl status --wa"), ["plain,--watch"])
        self.assertEqual(await self.complete("liqodctl status -o y"), ["plain,yaml"])
        self.assertEqual(await self.complete("liqodctl token cr", "fish"), ["plain,create\tPrint a new token."])
        self.assertEqual((await self.complete("liqodctl token cr", "zsh"))[:2], ["plain", "create"])

    async def test_names(self) -> None:
        """Peers, namespaces, pods and contexts of the cluster are offered; odd names of peers are not."""
        self.assertEqual(await self.complete("liqodctl trust mi"), ["plain,milan"])
        self.assertEqual(await self.complete("liqodctl offload namespace sh"), ["plain,shop"])
        self.assertEqual(await self.complete("liqodctl explain pod w"), ["plain,web"])
        self.assertEqual(await self.complete("liqodctl explain po"), ["plain,pod"])
        name = yaml.safe_load(self.kubeconfig.read_text())["current-context"]
        self.assertEqual(await self.complete(f"liqodctl status --context {name[:2]}"), [f"plain,{name}"])
        await self.client.patch(FOREIGNCLUSTERS, "c2", {"status": {"clusterName": "mi;rm -rf"}}, subresource="status")
        self.assertEqual(await self.complete("liqodctl trust mi"), [])

    async def test_a_slow_plugin(self) -> None:
        """kubectl may not read what is typed meanwhile, and Ctrl-C ends it without a word."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        program = folder / "kubectl"
        program.write_text("#!/bin/sh\nread typed && exit 1\ntouch $0.asked\nexec sleep 60\n")
        program.chmod(0o755)
        environ = {"COMP_WORDS": "liqodctl trust mi", "COMP_CWORD": "2", "_LIQODCTL_COMPLETE": "bash_complete"}
        script = (
            "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
            "from liqod.cli.console import complete; complete.TIMEOUT = 60.0; "
            "from liqod.cli.main import main; sys.argv[1:] = []; main()"
        )
        running = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", script],
            env={**os.environ, **environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while running.poll() is None and not (folder / "kubectl.asked").exists():
            await deferLater(REACTOR, 0.05)
        running.send_signal(signal.SIGINT)
        out, err = await deferToThread(running.communicate)
        self.assertEqual((running.returncode, out, err), (130, "", ""))

    async def test_no_cluster(self) -> None:
        """Where no cluster answers nothing is offered, without a word."""
        self.kubeconfig.write_text("{")
        self.assertEqual(await self.complete("liqodctl trust mi"), [])


class ImportTests(SynchronousTestCase):
    """What must be quick imports little."""

    def test_light(self) -> None:
        """Neither version nor completion imports Twisted, the kubernetes package or TLS."""
        for environ, argv in (
            ({}, ["version"]),
            ({"_LIQODCTL_COMPLETE": "bash_complete", "COMP_WORDS": "liqodctl trust --w", "COMP_CWORD": "2"}, []),
        ):
            script = (
                "import sys, atexit; from liqod.cli.main import main; "
                "atexit.register(lambda: sys.stderr.write(' '.join(sorted(sys.modules)))); sys.argv[1:] = "
                f"{argv!r}; main()"
            )
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", script],
                env={**os.environ, **environ},
                capture_output=True,
                text=True,
                check=True,
            )
            self.assertTrue(done.stdout)
            heavy = {"twisted", "kubernetes", "OpenSSL", "cryptography", "msgspec", "yaml", "zeroconf"}
            self.assertEqual(heavy & set(done.stderr.split()), set(), argv)


class ClosedStreamTests(SynchronousTestCase):
    """A standard stream that was closed before, as a service manager may leave it."""

    def test_closed(self) -> None:
        """What would be printed there is lost, and nothing can be read: neither is a defect."""
        for command, status in (
            ("version >&-", 0),
            ("version 2>&-", 0),
            ("version <&- >&- 2>&-", 0),
            ("nonsense 2>&-", 2),
            ("peer - <&-", 2),
        ):
            done = subprocess.run(
                ["/bin/sh", "-c", f"{sys.executable} -m liqod.cli {command}"],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertEqual(done.returncode, status, (command, done.stderr))
            self.assertNotIn("Traceback", done.stderr, command)
            self.assertNotIn("LQ9001", done.stderr, command)


class UsageTests(EveryCase):
    """Names that were mistyped, contexts, several kubeconfigs."""

    async def test_did_you_mean(self) -> None:
        """A mistyped command, option or peer is answered with what was meant."""
        for argv, meant, code in (
            (["statsu"], "status", 2),
            (["offload", "namespce", "x"], "namespace", 2),
            (["token", "creat"], "create", 2),
            (["status", "--wach"], "--watch", 2),
            (["trust", "mlian", "--yes"], "milan", 1),
        ):
            _, err, status = await self.outcome(*argv)
            self.assertEqual(status, code, argv)
            self.assertRegex(err, rf"(?i)did you mean.*{meant}", argv)

    async def test_contexts(self) -> None:
        """A context is found in the second of several kubeconfigs, with --context before or after the command."""
        body = yaml.safe_load(self.kubeconfig.read_text())
        name = body["current-context"]
        body["contexts"][0]["name"] = body["current-context"] = "other"
        second = Path(self.mktemp()).absolute()
        second.write_text(yaml.safe_dump(body).replace(self.cluster.url, "https://127.0.0.1:1"))
        both = {"KUBECONFIG": f"{second}:{self.kubeconfig}"}
        for cluster in body["clusters"]:
            cluster["name"] = "elsewhere"
        body["contexts"][0]["context"]["cluster"] = "elsewhere"
        second.write_text(yaml.safe_dump(body).replace(self.cluster.url, "https://127.0.0.1:1"))
        self.assertIn("LQ1003", (await self.outcome("status", env=both))[1])
        for argv in (["--context", name, "status"], ["status", "--context", name]):
            self.assertEqual((await self.outcome(*argv, env=both))[2], 0, argv)
        self.assertIn("LQ1002", (await self.outcome("status", "--context", "nowhere"))[1])
