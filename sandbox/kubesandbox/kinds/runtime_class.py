"""What a RuntimeClass gives the pods that name it: its node selector and tolerations. Pure.

Source: kubernetes/plugin/pkg/admission/runtimeclass and pkg/util/tolerations. Overhead is not simulated.
"""

from __future__ import annotations

from kubesandbox.kinds.kinds import Json


class Conflict(Exception):
    """The pod selects other nodes than its RuntimeClass; the message is the API server's."""


def scheduled(spec: Json, runtime_class: Json) -> Json:
    """Return a pod's specification with the scheduling of its RuntimeClass; raises Conflict."""
    scheduling = runtime_class.get("scheduling")
    if not scheduling:
        return spec
    wanted, own = scheduling.get("nodeSelector") or {}, spec.get("nodeSelector") or {}
    for key, value in wanted.items():
        if own.get(key, value) != value:
            raise Conflict(
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {own[key]}"
            )
    merged = _merged([*(spec.get("tolerations") or ()), *(scheduling.get("tolerations") or ())])
    result = spec | {"tolerations": merged} if merged else spec
    return result | {"nodeSelector": own | wanted} if own or wanted else result


def _merged(tolerations: list[Json]) -> list[Json]:
    """Return the tolerations without those that another one includes."""
    result: list[Json] = []
    for position, each in enumerate(tolerations):
        later = [other for other in tolerations[position + 1 :] if other != each]
        if not any(_includes(other, each) for other in (*result, *later)):
            result.append(each)
    return result


def _includes(wide: Json, narrow: Json) -> bool:
    if wide == narrow:
        return True
    exists = wide.get("operator") == "Exists"
    if narrow.get("key", "") != wide.get("key", "") and (wide.get("key") or not exists):
        return False
    if wide.get("effect") and narrow.get("effect", "") != wide["effect"]:
        return False
    limit, seconds = wide.get("tolerationSeconds"), narrow.get("tolerationSeconds")
    if wide.get("effect") == "NoExecute" and limit is not None and (seconds is None or seconds > limit):
        return False
    return exists or (narrow.get("operator") == "Equal" and narrow.get("value", "") == wide.get("value", ""))
