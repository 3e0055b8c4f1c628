"""Which roles a host refuses, by its configuration and the units that it uses."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.console.errors import CliError
from liqod.cli.setup.host.role import may_lead, refuse_role
from liqod.config.schema import DaemonSettings, NetworkSettings, Settings

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
