"""All cases of the contract."""

from __future__ import annotations

from collections.abc import Iterable

from tests.contract.base import ContractCase
from tests.contract.cases_access import AccessCases
from tests.contract.cases_apply import ApplyCases, CustomCases
from tests.contract.cases_controllers import NamespaceCases, OwnerCases, WorkloadCases
from tests.contract.cases_objects import ListCases, ObjectCases, PatchCases
from tests.contract.cases_pods import PodCases, PodSecurityCases
from tests.contract.cases_surface import AdmissionCases, DiscoveryCases, KubectlCases, TableCases
from tests.contract.cases_watch import WatchCases

SUITE: tuple[type[ContractCase], ...] = (
    ObjectCases,
    PatchCases,
    ListCases,
    WatchCases,
    ApplyCases,
    CustomCases,
    AccessCases,
    PodCases,
    PodSecurityCases,
    NamespaceCases,
    OwnerCases,
    WorkloadCases,
    DiscoveryCases,
    TableCases,
    AdmissionCases,
    KubectlCases,
)


def runs(cases: Iterable[type[ContractCase]], server: type, module: str) -> dict[str, type]:
    """Return a test class by name for each class of cases, with what opens its server mixed in."""
    found = {}
    for case in cases:
        name = f"{case.__name__.removesuffix('Cases')}{server.__name__}Tests"
        found[name] = type(name, (server, case), {"__module__": module, "__doc__": case.__doc__})
    return found
