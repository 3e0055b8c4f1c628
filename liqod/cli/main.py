"""``liqodctl``: the group of all commands; each acts on the own cluster only.

Exit status: 0 success, 1 failure, 2 wrong usage or configuration, 130 interrupted, 141 output closed by its reader. A
failure has a stable code (LQ...), a message and a hint.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from click.utils import PacifyFlushWrapper

from liqod.cli.console import errors, terminal
from liqod.cli.console.errors import CliError
from liqod.cli.console.group import Commands
from liqod.cli.console.options import Options, group_options, output_options
from liqod.cli.console.render import Format

PROGRAM = "liqodctl"
PLUGIN = "kubectl-liqod"
"""The name under which ``kubectl`` finds the program as ``kubectl liqod``."""
COMPLETE = "_LIQODCTL_COMPLETE"
"""Set by a shell that completes a command line."""
TRACEBACK = "LIQODCTL_TRACEBACK"
"""Set in the environment, it lets a defect end with its traceback."""

COMMANDS = {
    "See": {
        "status": ("liqod.cli.status.status:status", "Show this cluster's peerings"),
        "discover": ("liqod.cli.status.status:discover", "List clusters in sight, with their words"),
        "facts": ("liqod.cli.status.own_facts:facts", "Show what is known of this cluster"),
        "explain": ("liqod.cli.status.explain:explain", "Explain a pod, peer, node, ..., or a code"),
        "check": ("liqod.cli.setup.check:check", "Check the installation"),
        "doctor": ("liqod.cli.setup.doctor:doctor", "Find what is wrong or will break"),
        "usage": ("liqod.cli.status.usage:usage", "Show what each peer borrows and lends"),
        "web": ("liqod.cli.web.command:web", "Show a live page in a browser"),
        "who-has": ("liqod.cli.workloads.who_has:who_has", "List which clusters hold copies"),
    },
    "Peer": {
        "peer": ("liqod.cli.peering.peer:peer", "Peer by a token or an address"),
        "token": ("liqod.cli.peering.token:token", "Create, list, revoke pairing tokens"),
        "trust": ("liqod.cli.peering.trust:trust", "Trust a peer's key"),
        "distrust": ("liqod.cli.peering.trust:distrust", "Revoke the trust in a peer at once"),
        "unpeer": ("liqod.cli.peering.unpeer:unpeer", "End a peering on both sides"),
        "accept": ("liqod.cli.peering.offers:accept", "Accept a peer's offer"),
        "refuse": ("liqod.cli.peering.offers:refuse", "Refuse a peer's offer"),
        "tenant": ("liqod.cli.peering.tenant:tenant", "Show what a peer may do and uses here"),
        "reclaim": ("liqod.cli.peering.reclaim:reclaim", "Take back what is lent to a peer"),
        "confirm-deletions": (
            "liqod.cli.peering.confirm_deletions:confirm_deletions",
            "Let held deletions at a peer go on",
        ),
        "rotate-key": ("liqod.cli.peering.rotate_key:rotate_key", "Replace this cluster's key"),
        "dns-records": ("liqod.cli.peering.dns_records:dns_records", "Print DNS records to publish"),
    },
    "Offload": {
        "node": ("liqod.cli.workloads.nodes:node", "Make, list, delete virtual nodes of peers"),
        "slice": ("liqod.cli.workloads.slices:slices", "Ask peers for slices, list, remove them"),
        "offload": ("liqod.cli.workloads.offload:offload", "Run a namespace's pods elsewhere, too"),
        "unoffload": ("liqod.cli.workloads.offload:unoffload", "Bring a namespace's pods home"),
        "cordon": ("liqod.cli.workloads.drain:cordon", "Schedule no new pods on a peer"),
        "uncordon": ("liqod.cli.workloads.drain:uncordon", "Schedule pods on a peer again"),
        "drain": ("liqod.cli.workloads.drain:drain", "Evict the pods that run at a peer"),
        "move": ("liqod.cli.workloads.move.command:move", "Move a volume to another cluster"),
    },
    "Network": {
        "netcheck": ("liqod.cli.network.netcheck:netcheck", "Check the path to a peer hop by hop"),
        "ping": ("liqod.cli.network.ping:ping", "Measure each path to a peer"),
        "test": ("liqod.cli.network.connectivity.command:test", "Test all paths between pods"),
        "bench": ("liqod.cli.network.bench:bench", "Measure throughput or latency"),
        "plan": ("liqod.cli.network.plan:plan", "Preview changes of this host's network"),
        "rotate-tunnel-key": ("liqod.cli.network.plan:rotate_tunnel_key", "Replace the WireGuard key"),
    },
    "Set up": {
        "up": ("liqod.cli.setup.up.commands:up", "Set liqod up on this host, and start it"),
        "down": ("liqod.cli.setup.up.commands:down", "Take back what up did"),
        "install": ("liqod.cli.setup.install:install", "Install liqod in this cluster"),
        "uninstall": ("liqod.cli.setup.install:uninstall", "Remove liqod from this cluster"),
        "gather": ("liqod.cli.setup.archive.gather:gather", "Write an archive for a problem report"),
        "demo": ("liqod.cli.setup.demo:demo", "Show two simulated clusters at work"),
    },
}
"""By section, each command with the place of its code and its help in one line."""


def _print_version(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        terminal.echo(f"{PROGRAM} {own_version()}")
        ctx.exit()


@click.group(
    cls=Commands, sections=COMMANDS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
@group_options
def cli() -> None:
    """Peer this Kubernetes cluster with others; lend and borrow free resources.

    Every command acts on your own cluster only. The kubeconfig is that of --kubeconfig, else $KUBECONFIG, else the one
    in the daemon's configuration, else ~/.kube/config.

    \b
    Examples:
      liqodctl status                     what is peered, and what is wrong
      liqodctl trust milan                trust a cluster that was discovered
      liqodctl offload namespace shop     let pods run in other clusters
    """


@cli.command(short_help="Show the version")
@output_options
def version(options: Options) -> None:
    """Show the version of this program.

    \b
    Example:
      liqodctl version -o json
    """
    publish(options, f"{PROGRAM} {own_version()}", {"program": PROGRAM, "version": own_version()})


@cli.command(short_help="Print a shell's completion script")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@output_options
def completion(options: Options, shell: str) -> None:
    """Print the completion script of a shell.

    Names of peers, namespaces, pods and contexts are completed by way of kubectl.

    \b
    Examples:
      eval "$(liqodctl completion bash)"
      liqodctl completion fish > ~/.config/fish/completions/liqodctl.fish
    """
    from click.shell_completion import BashComplete, FishComplete, ZshComplete

    kind = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}[shell]
    script = kind(cli, {}, PROGRAM, COMPLETE).source()
    publish(options, script.rstrip("\n"), {"shell": shell, "script": script})


def publish(options: Options, text: str, result: object) -> None:
    """Print the result of a command that uses no cluster."""
    if not options.is_document:
        terminal.echo(text)
        return
    from liqod.cli.console.render import as_text

    form: Format = options.output
    terminal.echo_document(as_text(result, form, ascii_only=not terminal.is_unicode(sys.stdout)))


def own_version() -> str:
    """Return the installed version, or "(from a checkout)" where the distribution is not installed."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed_version

    try:
        return installed_version("liqod")
    except PackageNotFoundError:
        return "(from a checkout)"


def main() -> None:
    """Run the command line and exit with its status."""
    terminal.prepare()
    if COMPLETE in os.environ:
        _complete()
    lost = False
    try:
        status = _run()
        sys.stdout.flush()
    except BrokenPipeError:
        status, lost = errors.BROKEN_PIPE, True
    except OSError as error:
        status, lost = _complain(_of_output(error)), True
    if lost:
        # The interpreter flushes standard output once more at its exit, which would fail again.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)


def _complete() -> None:
    """Answer a shell that completes a command line, and exit."""
    from click.shell_completion import shell_complete

    from liqod.cli.console.command_tree import light_tree

    try:
        sys.exit(shell_complete(light_tree(), {}, PROGRAM, COMPLETE, os.environ[COMPLETE]))
    except KeyboardInterrupt:
        sys.exit(errors.INTERRUPTED)


def _run() -> int:
    name = Path(sys.argv[0]).name
    try:
        # standalone_mode=False makes click raise instead of printing and exiting, so that the codes and hints are ours.
        cli.main(
            prog_name="kubectl liqod" if name == PLUGIN else PROGRAM,
            standalone_mode=False,
        )
    except CliError as error:
        return _complain(error)
    except SystemExit as exit_:
        # click handles a closed pipe by itself, and says so by this wrapper only.
        if type(sys.stdout) is PacifyFlushWrapper:
            return errors.BROKEN_PIPE
        return exit_.code if isinstance(exit_.code, int) else errors.FAILED
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.ClickException as error:
        error.show()
        terminal.AWAITED.form = terminal.AWAITED.form or _form_in(sys.argv[1:])
        _give(errors.CONFIGURATION, error.format_message(), "--help shows how it is used")
        return errors.USAGE if isinstance(error, click.UsageError) else errors.FAILED
    except (click.Abort, KeyboardInterrupt):
        terminal.echo("interrupted", err=True)
        return errors.INTERRUPTED
    except OSError as error:
        if isinstance(error, BrokenPipeError) or error.errno == errno.ENOSPC:
            raise  # What could not be written is still to be written at the end: it is said once.
        return _complain(_defect(error))
    except Exception as error:
        return _complain(_defect(error))
    return 0


def _form_in(words: Sequence[str]) -> Format | None:
    """Return what -o asks for on a command line that cannot be used, as far as that can be seen. Pure."""
    for word, after in zip(words, [*words[1:], ""], strict=True):
        option, equals, value = word.partition("=")
        wanted = value if equals else after
        if word.startswith("-o") and word != "-o":
            option, wanted = "-o", word[2:]
        if option in ("-o", "--output") and wanted in ("json", "yaml"):
            return "json" if wanted == "json" else "yaml"
    return None


def _give(code: str, message: str, hint: str) -> None:
    """Print an error for a program that waits for a document and has none."""
    form = terminal.AWAITED.form
    if form is not None and not terminal.AWAITED.given:
        publish(Options(output=form), "", {"code": code, "message": message, "hint": hint})


def _of_output(error: OSError) -> CliError:
    terminal.AWAITED.given = True  # Nothing can be printed there.
    return CliError(
        errors.FILE, f"the output cannot be written: {(error.strerror or str(error)).lower()}", "write it elsewhere"
    )


def _defect(error: Exception) -> CliError:
    if os.environ.get(TRACEBACK):
        raise error
    return CliError(
        errors.DEFECT,
        f"a defect of liqod: {type(error).__name__}: {error}",
        f"please report it, with the traceback that {TRACEBACK}=1 shows",
    )


def _complain(error: CliError) -> int:
    with contextlib.suppress(OSError):
        terminal.echo_wrapped(f"{error.code}: {error.message}", "red", hanging="  ", err=True)
        if error.hint:
            terminal.echo_wrapped(error.hint, indent="  ", err=True)
    _give(error.code, error.message, error.hint)
    return error.status
