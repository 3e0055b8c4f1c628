"""How a pairing token reaches a command."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.main import cli
from liqod.cli.peering import peer as peer_module
from liqod.cli.setup.up import commands as up_commands
from liqod.identity.pairing import Token
from liqod.model.ids import ClusterID, Fingerprint


class InputTests(SynchronousTestCase):
    """A token that is not among the arguments."""

    def test_a_token_from_standard_input(self) -> None:
        """`-` stands for its first line, in `peer` and in `up --join`: arguments are shown to everybody on the host."""
        token = Token(
            "0a1b", ClusterID("milan"), "Milan", Fingerprint("sha256:" + "a" * 64), ["192.0.2.1:5872"], bytes(32)
        )
        chosen: list[str] = []
        self.patch(peer_module, "in_cluster", lambda options, work: chosen.append(work.__name__))
        for text, kind in ((token.text, "with_token"), ("192.0.2.1", "at_address")):
            result = CliRunner().invoke(cli, ["peer", "-"], input=f"{text}\nmore\n")
            self.assertEqual((result.exit_code, chosen.pop()), (0, kind), result.output)
        read: list[str] = []

        def recorded(text: str) -> Token:
            read.append(text)
            return token

        self.patch(up_commands, "pairing_token", recorded)
        result = CliRunner().invoke(cli, ["up", "--join", "-", "--root", self.mktemp_root()], input=f"{token.text}\n")
        self.assertIn("--join and --invite are for this host", result.output)
        self.assertEqual(read, [token.text])
        for empty in ("", "\n"):
            result = CliRunner().invoke(cli, ["peer", "-"], input=empty)
            self.assertIn("standard input", str(result.exception))

    def mktemp_root(self) -> str:
        """Return the root of a host where nothing runs."""
        root = Path(self.mktemp())
        root.mkdir()
        return str(root)
