"""Which process runs which feature, and what each process may do (docs/decisions.md, "Three processes"). Pure.

At run time only ``runs`` is asked, by ``agent.wiring``, for the features of ``all`` and ``control``; what ``names``,
``network`` and a node's own agent (``[network] role = "node"``) start is chosen in ``agent.service``. ``CAPABILITIES``
is what the units in ``systemd/`` grant: tests compare them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class Process(Enum):
    """One of the processes that liqod is cut into; the value is the name of its role."""

    CONTROL = "control"
    NETWORK = "network"
    NAMES = "names"


ALL: Final = "all"
"""The role of a single process that is all of them: small clusters, tests, the demonstration."""

_CONTROL: Final = frozenset({Process.CONTROL})
FEATURES: Final[Mapping[str, frozenset[Process]]] = {
    "informers": frozenset(Process),
    "facts": _CONTROL,
    "hosting": _CONTROL,
    "peering": _CONTROL,
    "kubelets": _CONTROL,
    "webhook": _CONTROL,
    "spillover": _CONTROL,
    "discovery": _CONTROL,
    "domain search": _CONTROL,
    "network": _CONTROL,
    "network agent": frozenset({Process.NETWORK}),
    "name services": _CONTROL,
    "home names": _CONTROL,
    "names": frozenset({Process.NAMES}),
    "leader services": _CONTROL,
}
"""The processes of each feature, by the name it is started under; ``network`` decides what ``network agent`` carries
out, ``name services`` leads tenants to ``names``."""

CAPABILITIES: Final[Mapping[Process, frozenset[str]]] = {
    Process.CONTROL: frozenset(),
    Process.NETWORK: frozenset({"CAP_NET_ADMIN", "CAP_NET_RAW"}),
    Process.NAMES: frozenset(),
}
"""Linux capabilities that a process holds, see capabilities(7)."""


def processes_of(role: str) -> frozenset[Process]:
    """Return the processes that a role stands for; raises ValueError for what is no role."""
    if role == ALL:
        return frozenset(Process)
    try:
        return frozenset({Process(role)})
    except ValueError:
        allowed = ", ".join([ALL, *(process.value for process in Process)])
        raise ValueError(f"{role!r} is no role; roles are {allowed}") from None


def runs(role: str, feature: str) -> bool:
    """Return whether a process with this role runs a feature; raises KeyError for a feature that has no process."""
    return bool(FEATURES[feature] & processes_of(role))
