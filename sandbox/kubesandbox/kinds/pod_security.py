"""The Pod Security Standards: what the levels baseline and restricted forbid in a pod. Pure.

Source: k8s.io/pod-security-admission/policy; the checks that matter for containers on Linux.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubesandbox.kinds.kinds import Json

_BASELINE_CAPABILITIES: Final = frozenset(
    [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ]
)
_RESTRICTED_VOLUMES: Final = frozenset(
    [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
        "image",
    ]
)


def violations(spec: Mapping[str, Any], annotations: Mapping[str, str], level: str) -> list[str]:
    """Return what a level forbids in this pod, as the refusal words it; nothing for ``privileged``."""
    if level not in ("baseline", "restricted"):
        return []
    found = list(_baseline(spec))
    if level == "restricted":
        found.extend(_restricted(spec))
    return found


def _containers(spec: Mapping[str, Any]) -> list[Json]:
    return [
        each
        for group in ("initContainers", "containers", "ephemeralContainers")
        for each in spec.get(group) or ()
        if isinstance(each, dict)
    ]


def _named(containers: list[Json]) -> str:
    names = ", ".join(f'"{each.get("name", "")}"' for each in containers)
    return f"container{'s' if len(containers) > 1 else ''} {names}"


def _context(body: Mapping[str, Any]) -> Json:
    context = body.get("securityContext")
    return context if isinstance(context, dict) else {}


def _baseline(spec: Mapping[str, Any]) -> Iterator[str]:
    containers = _containers(spec)
    shared = [f"{field}=true" for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field)]
    if shared:
        yield f"host namespaces ({', '.join(shared)})"
    added = [each for each in containers if _added(each) - _BASELINE_CAPABILITIES]
    if added:
        words = ", ".join(
            f'"{name}"' for name in sorted({n for c in added for n in _added(c) - _BASELINE_CAPABILITIES})
        )
        yield f"non-default capabilities ({_named(added)} must not include {words} in securityContext.capabilities.add)"
    host_path = [each.get("name", "") for each in spec.get("volumes") or () if "hostPath" in each]
    if host_path:
        words = ", ".join(f'"{name}"' for name in host_path)
        yield f"hostPath volumes (volume{'s' if len(host_path) > 1 else ''} {words})"
    ports = [each for each in containers if any(port.get("hostPort") for port in each.get("ports") or ())]
    if ports:
        numbers = sorted(
            {port["hostPort"] for each in ports for port in each.get("ports") or () if port.get("hostPort")}
        )
        uses = "uses" if len(ports) == 1 else "use"
        plural = "s" if len(numbers) > 1 else ""
        yield f"hostPort ({_named(ports)} {uses} hostPort{plural} {', '.join(str(n) for n in numbers)})"
    privileged = [each for each in containers if _context(each).get("privileged")]
    if privileged:
        yield f"privileged ({_named(privileged)} must not set securityContext.privileged=true)"
    mounts = [each for each in containers if _context(each).get("procMount", "Default") != "Default"]
    if mounts:
        yield f"procMount ({_named(mounts)} must not set securityContext.procMount)"
    if any((_context(each).get("seccompProfile") or {}).get("type") == "Unconfined" for each in [spec, *containers]):
        yield 'seccompProfile (pod must not set securityContext.seccompProfile.type to "Unconfined")'


def _added(container: Json) -> set[str]:
    return set((_context(container).get("capabilities") or {}).get("add") or ())


def _restricted(spec: Mapping[str, Any]) -> Iterator[str]:
    containers, pod = _containers(spec), _context(spec)
    escalating = [each for each in containers if _context(each).get("allowPrivilegeEscalation") is not False]
    if escalating:
        demand = "must set securityContext.allowPrivilegeEscalation=false"
        yield f"allowPrivilegeEscalation != false ({_named(escalating)} {demand})"
    capable = [
        each for each in containers if "ALL" not in ((_context(each).get("capabilities") or {}).get("drop") or ())
    ]
    if capable:
        yield f'unrestricted capabilities ({_named(capable)} must set securityContext.capabilities.drop=["ALL"])'
    adding = [
        each for each in containers if _added(each) - {"NET_BIND_SERVICE"} and not _added(each) - _BASELINE_CAPABILITIES
    ]
    if adding:
        yield f'unrestricted capabilities ({_named(adding)} must not add capabilities other than "NET_BIND_SERVICE")'
    odd = [
        each.get("name", "")
        for each in spec.get("volumes") or ()
        if "hostPath" in each or not (set(each) & _RESTRICTED_VOLUMES)
    ]
    if odd:
        words = ", ".join(f'"{name}"' for name in odd)
        yield f"restricted volume types (volume{'s' if len(odd) > 1 else ''} {words})"
    rooted = [
        each
        for each in containers
        if _context(each).get("runAsNonRoot") is False
        or (_context(each).get("runAsNonRoot") is None and pod.get("runAsNonRoot") is not True)
    ]
    if rooted:
        who = _named(rooted) if pod.get("runAsNonRoot") else f"pod or {_named(rooted)}"
        yield f"runAsNonRoot != true ({who} must set securityContext.runAsNonRoot=true)"
    if pod.get("runAsUser") == 0 or any(_context(each).get("runAsUser") == 0 for each in containers):
        yield "runAsUser=0 (pod must not set runAsUser=0)"
    good = ("RuntimeDefault", "Localhost")
    pod_good = (pod.get("seccompProfile") or {}).get("type") in good
    loose = [
        each
        for each in containers
        if (_context(each).get("seccompProfile") or {}).get("type", "RuntimeDefault" if pod_good else "") not in good
    ]
    if loose:
        who = _named(loose) if pod_good else f"pod or {_named(loose)}"
        yield f'seccompProfile ({who} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")'
