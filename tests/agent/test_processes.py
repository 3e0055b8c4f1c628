"""The cut of the daemon into processes."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.processes import ALL, CAPABILITIES, FEATURES, Process, processes_of, runs
from liqod.fabric.agent.recorded import RecordedFabric

CHECKOUT = Path(__file__).resolve().parents[2]


def _capabilities_of(role: str) -> frozenset[str]:
    return frozenset().union(*(CAPABILITIES[process] for process in processes_of(role)))


class ProcessesTests(SynchronousTestCase):
    def test_every_feature_has_a_process(self) -> None:
        """What the composition starts by name is in the table, and so is what runs without it; nothing else is."""
        started = re.findall(r'_start\(\s*"([a-z ]+)"', (CHECKOUT / "liqod/agent/wiring.py").read_text())
        self.assertEqual(sorted([*started, RecordedFabric.name]), sorted(FEATURES))

    def test_all_runs_everything(self) -> None:
        """The role ``all`` runs each feature; every other role runs those of its own processes only."""
        for feature, processes in FEATURES.items():
            self.assertTrue(runs(ALL, feature))
            self.assertEqual({each for each in Process if runs(each.value, feature)}, processes)

    def test_control_has_no_network_rights(self) -> None:
        """Control and names hold no capability; the network agent holds those of the network alone."""
        self.assertEqual(CAPABILITIES[Process.CONTROL] | CAPABILITIES[Process.NAMES], frozenset())
        self.assertTrue(all(name.startswith("CAP_NET_") for name in CAPABILITIES[Process.NETWORK]))

    def test_the_unit_holds_what_its_role_needs(self) -> None:
        """The service runs as ``all`` and has the capabilities of that role, no more and no fewer."""
        unit = (CHECKOUT / "systemd/liqod.service").read_text()
        for setting in ("AmbientCapabilities", "CapabilityBoundingSet"):
            (value,) = re.findall(rf"^{setting}=(.*)$", unit, re.MULTILINE)
            self.assertEqual(frozenset(value.split()), _capabilities_of(ALL), setting)

    def test_the_units_of_a_split_daemon(self) -> None:
        """The unit of the network agent holds the capabilities of that role; those of control and names hold none."""
        for name, role in (("liqod-network", "network"), ("liqod-control", "control"), ("liqod-names", "names")):
            unit = (CHECKOUT / f"systemd/{name}.service").read_text()
            for setting in ("AmbientCapabilities", "CapabilityBoundingSet"):
                (value,) = re.findall(rf"^{setting}=(.*)$", unit, re.MULTILINE)
                self.assertEqual(frozenset(value.split()), _capabilities_of(role), (name, setting))
            self.assertIn(f"Environment=LIQOD_DAEMON__ROLE={role}\n", unit)

    def test_unknown_role(self) -> None:
        """What is no role is refused with those there are."""
        with self.assertRaisesRegex(ValueError, "'gateway' is no role; roles are all, control, network, names"):
            processes_of("gateway")
