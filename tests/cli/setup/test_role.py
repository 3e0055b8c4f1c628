"""Which roles a host refuses, by its configuration and the units that it uses."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.console.errors import CliError
from liqod.cli.main import cli
from liqod.cli.setup.host import apply
from liqod.cli.setup.host.role import may_lead, refuse_role
from liqod.config.schema import DaemonSettings, NetworkSettings, Settings
from tests.cli.cluster_case import ClusterCase

CONTROL, NETWORK, NAMES = "liqod-control.service", "liqod-network.service", "liqod-names.service"


def with_role(role: str, network: str = "gateway") -> Settings:
    """Return settings with both roles."""
    return Settings(daemon=DaemonSettings(role=role), network=NetworkSettings(role=network))  # type: ignore[arg-type]


class RoleTests(SynchronousTestCase):
    def hint(self, settings: Settings, *units: str) -> str:
        """Return what is to be typed instead, or "" where nothing is refused."""
        try:
            refuse_role(settings, units)
        except CliError as error:
            return error.hint
        return ""

    def test_who_may_lead(self) -> None:
        """All and control have the account of the daemon that leads, the others have their own."""
        found = {role: may_lead(with_role(role)) for role in ("all", "control", "network", "names")}
        self.assertEqual(found, {"all": True, "control": True, "network": False, "names": False})

    def test_node(self) -> None:
        """A node's configuration goes with the processes beside the one that leads."""
        for role, refused in (("all", True), ("network", False), ("names", False)):
            self.assertEqual(bool(self.hint(with_role(role, "node"))), refused, role)

    def test_split_host(self) -> None:
        """Where control or the network agent is a process of its own, each role has its command."""
        control, network = (f"`LIQOD_DAEMON__ROLE={role} liqodctl install`" for role in ("control", "network"))
        for units, commands in (
            ([CONTROL], [control]),
            ([NETWORK], [network]),
            ([NAMES, CONTROL, NETWORK], [control, network]),
        ):
            hint = self.hint(with_role("all"), *units)
            self.assertEqual([one for one in (control, network) if one in hint], commands, units)
            for role in ("control", "network", "names"):
                self.assertEqual(self.hint(with_role(role), *units), "")

    def test_one_process(self) -> None:
        """Names may be answered beside the one process that is the rest."""
        for units in ([], ["liqod.service"], ["liqod.service", NAMES]):
            self.assertEqual(self.hint(with_role("all"), *units), "")


class CommandsTests(SynchronousTestCase):
    """``install``, before it looks at a cluster."""

    def test_not_for_a_node(self) -> None:
        """On a node's host, install without a role would take the rights of the account that the leader works with."""
        config = Path(self.mktemp()).absolute()
        config.write_text('[network]\nmode = "wireguard"\nrole = "node"\n')
        for arguments in (["install"], ["install", "--print"]):
            error = CliRunner().invoke(cli, [*arguments, "--config", str(config)]).exception
            assert isinstance(error, CliError), repr(error)
            self.assertIn('[network] role = "node"', error.message)
            wanted = "LIQOD_DAEMON__ROLE=network liqodctl install --daemon-kubeconfig /etc/liqod/network.kubeconfig"
            self.assertEqual(error.hint, wanted)
        result = CliRunner(env={"LIQOD_DAEMON__ROLE": "network"}).invoke(
            cli, ["install", "--print", "--config", str(config)]
        )
        self.assertEqual(result.exit_code, 0, result.output)

    def test_split_host(self) -> None:
        """Where control and the network agent are two processes, install has to know for which it is."""
        self.patch(apply, "in_use", lambda root: ["liqod-control.service", "liqod-network.service"])
        for arguments in (["install"], ["install", "--print"]):
            error = CliRunner().invoke(cli, arguments).exception
            assert isinstance(error, CliError), repr(error)
            self.assertIn("LIQOD_DAEMON__ROLE=control liqodctl install", error.hint)
        result = CliRunner(env={"LIQOD_DAEMON__ROLE": "control"}).invoke(cli, ["install", "--print"])
        self.assertEqual(result.exit_code, 0, result.output)


class UpTests(ClusterCase):
    """``up``, of this host."""

    async def test_up_is_not_for_a_node(self) -> None:
        """It would set up the daemon that leads; what to type instead is said."""
        config = Path(self.mktemp()).absolute()
        config.write_text('[network]\nmode = "wireguard"\nrole = "node"\n')
        refused = await self.liqodctl("up", "--dry-run", "--config", str(config), status=1)
        self.assertIn("LIQOD_DAEMON__ROLE=network liqodctl install", refused)
