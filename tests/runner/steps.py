"""Which steps a run has: the checks of the source, and the test modules, found by where they are.

A module's folder says what it needs: ``tests/real`` real clusters, ``tests/netns`` root, ``tests/contract`` the
programs of a control plane, any other nothing but this machine. Those others share processes, several of one package in
each; the scenarios, which compute all the time, begin first of them, a few in each process.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from attrs import frozen

CHECKOUT: Final = Path(__file__).resolve().parents[2]
REAL: Final = "tests.real."
NETNS: Final = "tests.netns."
CONTRACT: Final = "tests.contract."
PROGRAMS: Final = "tests.real.programs."
PATIENT: Final = (REAL, NETNS, CONTRACT)
"""What waits for other programs and for the network, and takes as much longer on a slow machine as these do."""
UNIT_LIMIT: Final = 600.0
REAL_LIMIT: Final = 1500.0
TOGETHER: Final = 12
"""Modules of one package that share a process at most: to start one takes longer than most modules run."""
SCENARIO: Final = "tests.scenario"
EARLY: Final = (SCENARIO, "tests.peering", "tests.project", "tests.kubelet", "tests.cli")
"""Packages whose modules take long together: they begin first, so that none is left alone at the end."""
FEW: Final = 3
"""Scenario modules that share a process at most."""
LONG: Final = (
    "tests.real.test_three",
    "tests.real.test_unpeer_away",
    "tests.real.test_restored_etcd",
    "tests.real.test_node",
    "tests.real.test_network",
    "tests.real.test_names",
    "tests.real.test_unpeer",
    "tests.real.test_namespaces",
    "tests.real.test_relay",
    "tests.real.test_kill",
    "tests.real.test_bad_input",
    "tests.real.test_kubernetes_suite",
    "tests.real.test_conformance",
    "tests.real.test_home_api",
    "tests.real.test_kubelet_api",
    "tests.real.test_offload",
    "tests.netns.test_fabric",
    "tests.netns.test_failures",
    "tests.contract.test_real",
    "tests.scenario.test_kill_borrower",
    "tests.scenario.test_kill_lender",
    "tests.cli.test_commands",
    "tests.hosting.test_service",
    "tests.kubelet.test_service",
    "tests.peering.test_service",
    "tests.kubelet.reflection.test_service",
    "tests.peering.trust.test_distrust",
)
"""Modules that take longest: they begin first, each in a process of its own, so that none is left alone at the end."""
ON_LOOPBACK: Final = ("tests.discovery.test_mdns", "tests.sandbox.test_demo")
"""Modules that announce by mDNS on the loopback interface, where each would see the others: one after the other."""
NIGHTLY: Final = frozenset(
    {
        # The same cases run on the sandbox, which the contract suite holds to the real API server.
        "tests.real.test_conformance_reflection",
        "tests.real.test_bad_input",
        "tests.real.test_hosting",
        "tests.real.test_kubelet",
        "tests.real.test_namespaces",
        "tests.real.test_networkpolicies",
        "tests.real.test_node",
        "tests.real.test_provider",
        "tests.real.test_reflect",
        "tests.real.test_spillover",
        # They wait for what takes minutes: an offer's time to live, an outage, hundreds of pods with claims.
        "tests.real.test_offers",
        "tests.real.test_restored_etcd",
        "tests.real.test_unpeer_away",
        # Set-ups beside the usual one, and steps between two that others show.
        "tests.real.test_connectivity",
        "tests.real.test_direct",
        "tests.real.test_dualstack",
        "tests.real.test_first_minutes",
        "tests.real.test_gather",
        "tests.real.test_gateway_routes",
        "tests.real.test_home_api",
        "tests.real.test_home_api_streams",
        "tests.real.test_in_pod",
        "tests.real.test_names",
        "tests.real.test_network_auto",
        "tests.real.test_network_guests",
        "tests.real.test_network_mesh",
        "tests.real.test_reflect_path",
        "tests.real.test_slices",
        "tests.real.test_testbed",
        "tests.real.test_three",
        "tests.real.test_unpeer_network",
        "tests.real.test_variations",
        # What the evaluator of the unit tests shows of every rule, for one of each policy.
        "tests.real.test_weakened_policies",
        "tests.real.test_wan",
        "tests.real.test_two_lenders",
        # Real programs, and set-ups whose programs are built for them alone: parts of the night of their own.
        "tests.real.programs.test_clients",
        "tests.real.programs.test_disruption_budget",
        "tests.real.programs.test_everything",
        "tests.real.programs.test_ingress",
        "tests.real.programs.test_jobs",
        "tests.real.programs.test_postgres",
        "tests.real.programs.test_prometheus",
        "tests.real.programs.test_redis",
        "tests.real.programs.test_restricted",
        "tests.real.programs.test_rolling_update",
        "tests.real.test_metrics_server",
        "tests.real.test_move_volume",
        "tests.real.test_network_flannel",
        "tests.real.test_network_kube_router",
        "tests.real.test_releases",
        "tests.netns.test_fabric_auto",
        "tests.netns.test_fabric_crash",
        "tests.netns.test_fabric_exports",
        "tests.netns.test_fabric_guests",
        "tests.netns.test_fabric_reboot",
        "tests.netns.test_fabric_services",
        "tests.netns.test_fabric_sizes",
        "tests.netns.test_fabric_steady",
        "tests.netns.test_world",
    }
)
"""Modules that continuous integration has no time for: `make nightly` runs them, and so does who names them."""


@frozen
class Step:
    """One process of the run: its title, how long it may take, and either a command or the names of tests."""

    title: str
    limit: float
    argv: Sequence[str] = ()
    names: tuple[str, ...] = ()

    @property
    def is_real(self) -> bool:
        """Whether the step runs on real clusters."""
        return self.title.startswith(REAL)


def modules() -> list[str]:
    """Return the names of all test modules below ``tests``, wherever they are, in the order in which they begin."""
    files = sorted((CHECKOUT / "tests").rglob("test_*.py"))
    names = [".".join(file.relative_to(CHECKOUT).with_suffix("").parts) for file in files]
    return sorted(names, key=lambda name: LONG.index(name) if name in LONG else len(LONG))


def is_unit(name: str) -> bool:
    """Return whether a test needs neither root, nor clusters, nor programs that are built for them."""
    return not f"{name}.".startswith(PATIENT)


def trial(*names: str, patience: float = 1.0) -> Step:
    """Return the step that runs test modules, a class in one, or one test; ``patience`` stretches its limit."""
    title = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    limit = REAL_LIMIT if f"{names[0]}.".startswith(PATIENT) else UNIT_LIMIT
    return Step(title, limit * patience, names=names)


def steps_of(names: Iterable[str], patience: float = 1.0) -> list[Step]:
    """Return the steps of tests by name, those on real clusters first; small modules share a process."""
    apart: list[str] = []
    rest: list[str] = []
    for name in names:
        (rest if is_unit(name) and name not in LONG else apart).append(name)
    on_loopback = [name for name in rest if name in ON_LOOPBACK]
    rest = [name for name in rest if name not in ON_LOOPBACK]
    together = [on_loopback] if on_loopback else []
    for package, members in groupby(sorted(rest, key=_begins), key=package_of):
        group = list(members)
        # Even shares, so that none is left over with a single module.
        shares = -(-len(group) // (FEW if package == SCENARIO else TOGETHER))
        together += [group[number::shares] for number in range(shares)]
    steps = [
        *(trial(name, patience=patience) for name in apart),
        *(trial(*group, patience=patience) for group in together),
    ]
    return sorted(steps, key=lambda step: not step.is_real)


def package_of(name: str) -> str:
    """Return the package below ``tests`` that a test is about."""
    return ".".join(name.split(".")[:2])


def _begins(name: str) -> tuple[int, str]:
    package = package_of(name)
    return EARLY.index(package) if package in EARLY else len(EARLY), package


def checks() -> list[Step]:
    """Return the checks of the source code; the import contracts are checked by a test module."""
    python = [sys.executable, "-m"]
    commands = {
        "ruff check": [*python, "ruff", "check", "."],
        "ruff format": [*python, "ruff", "format", "--check", "."],
        "mypy": [*python, "mypy"],
    }
    return [Step(title, UNIT_LIMIT, argv=argv) for title, argv in commands.items()]
