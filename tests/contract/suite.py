"""All cases of the contract."""

from __future__ import annotations

from collections.abc import Iterable

from tests.contract.base import ContractCase
from tests.contract.cases_access import AccessCase
from tests.contract.cases_apply import ApplyCase, CustomCase
from tests.contract.cases_controllers import NamespaceCase, OwnerCase, WorkloadCase
from tests.contract.cases_objects import ListCase, ObjectCase, PatchCase
from tests.contract.cases_pods import PodCase, PodSecurityCase
from tests.contract.cases_surface import AdmissionCase, DiscoveryCase, KubectlCase, TableCase
from tests.contract.cases_watch import WatchCase

SUITE: tuple[type[ContractCase], ...] = (
    ObjectCase,
    PatchCase,
    ListCase,
    WatchCase,
    ApplyCase,
    CustomCase,
    AccessCase,
    PodCase,
    PodSecurityCase,
    NamespaceCase,
    OwnerCase,
    WorkloadCase,
    DiscoveryCase,
    TableCase,
    AdmissionCase,
    KubectlCase,
)


def runs(cases: Iterable[type[ContractCase]], server: type, module: str) -> dict[str, type]:
    """Return a test class by name for each class of cases, with what opens its server mixed in."""
    found = {}
    for case in cases:
        name = f"{case.__name__.removesuffix('Cases')}{server.__name__}Tests"
        found[name] = type(name, (server, case), {"__module__": module, "__doc__": case.__doc__})
    return found
