"""The resource requests of a pod, counted as the scheduler counts them.

Source: k8s.io/component-helpers ``resource.PodRequests``: the larger of the running sum (containers and restartable
init containers) and the largest initialization step, plus the pod's overhead. A limit without a request is a request
(the API server's defaulting). Pod-level resources (KEP-2837) replace the sum where they are given; here the larger of
the two counts, so that a borrower gains nothing by requesting less than its containers do.

While a pod is resized in place the largest counts of what is requested, allocated and in force (KEP-1287): what a node
has not taken back yet is not free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Final

from liqod.hosting.tenants.bounds import at_least
from liqod.hosting.views import Container, ContainerStatus, PodSpec, PodStatus, QuantityText, Requirements
from liqod.model.objects import quantity
from liqod.model.objects.quantity import Resources

PODS = "pods"
NOTHING: Final[Resources] = {}
_NO_STATUS: Final = PodStatus()


def of_pod(spec: PodSpec, defaults: Resources = NOTHING, *, status: PodStatus = _NO_STATUS) -> dict[str, Fraction]:
    """Return the requests of a pod by resource, ``pods: 1`` included; raises ValueError with the field of an invalid
    quantity.

    ``defaults`` are the requests of a container that requests nothing, unless the pod as a whole names something
    (``at_least``); ``status`` says what a node holds for the pod already.
    """
    whole = _of_requirements(spec.resources, "spec.resources", defaults, whole=True)
    held = _held(status)
    defaults = {name: value for name, value in defaults.items() if name not in whole} if defaults else defaults
    running = quantity.add(_of_container(c, "spec.containers", held, defaults) for c in spec.containers or ())
    whole = largest((whole, held.get("", NOTHING)))
    if not spec.init_containers and not spec.overhead and not whole:
        running[PODS] = Fraction(1)
        return running
    restartable: dict[str, Fraction] = {}
    starting: dict[str, Fraction] = {}
    for container in spec.init_containers or ():
        asked = _of_container(container, "spec.initContainers", held, defaults)
        if container.restart_policy == "Always":
            running = quantity.add((running, asked))
            restartable = quantity.add((restartable, asked))
            starting = largest((starting, restartable))
        else:
            starting = largest((starting, quantity.add((asked, restartable))))
    total = largest((running, starting, whole))
    total = quantity.add((total, _parse(spec.overhead or {}, "spec.overhead")))
    total[PODS] = Fraction(1)
    return total


def largest(parts: Iterable[Resources]) -> dict[str, Fraction]:
    """Return the largest value of each resource."""
    result: dict[str, Fraction] = {}
    for part in parts:
        for name, value in part.items():
            result[name] = max(value, result.get(name, value))
    return result


def _of_container(container: Container, where: str, held: Mapping[str, Resources], defaults: Resources) -> Resources:
    asked = _of_requirements(container.resources, f"{where}[{container.name[:63]}].resources", defaults)
    return largest((asked, held[container.name])) if container.name in held else asked


def _held(status: PodStatus) -> dict[str, Resources]:
    """Return what a node holds by the name of the container; for the pod as a whole by the empty name."""
    whole = ContainerStatus(allocated_resources=status.allocated_resources, resources=status.resources)
    named = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    held: dict[str, Resources] = {}
    for one in (*(container for container in named if container.name), whole):
        in_force = (one.resources.requests if one.resources is not None else None) or {}
        if one.allocated_resources or in_force:
            where = f"status[{one.name[:63]}]"
            held[one.name] = largest((_parse(one.allocated_resources or {}, where), _parse(in_force, where)))
    return held


def _of_requirements(
    requirements: Requirements | None, where: str, defaults: Resources, *, whole: bool = False
) -> Resources:
    """Return the requests, at least ``defaults``; for a pod as a ``whole`` of those resources only that it names."""
    if requirements is None:
        return NOTHING if whole else defaults
    limits = _parse(requirements.limits or {}, f"{where}.limits")
    asked = {**limits, **_parse(requirements.requests or {}, f"{where}.requests")}
    if not defaults:
        return asked
    return at_least(asked, limits, defaults, [name for name in defaults if name in asked or not whole])


def _parse(quantities: Mapping[str, QuantityText], where: str) -> dict[str, Fraction]:
    try:
        parsed = quantity.parse_all(quantities)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    for name, value in parsed.items():
        if value < 0:
            raise ValueError(f"{where}: {name[:63]} is negative")
    return parsed
