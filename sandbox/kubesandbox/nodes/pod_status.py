"""The status that a simulated node reports of its pods. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from kubesandbox.kinds.kinds import Json
from kubesandbox.nodes.script import Play
from kubesandbox.store.bodies import timestamp


@attrs.define
class Running:
    """A pod on a node. Times are seconds since 1970; ``started`` and ``stops`` are None until then."""

    starts: float
    address: str
    host_address: str
    plays: Mapping[str, Play]
    started: float | None = attrs.field(default=None, kw_only=True)
    stops: float | None = attrs.field(default=None, kw_only=True)
    restarts: int = attrs.field(default=0, kw_only=True)

    def finished(self, now: float) -> bool:
        """Return whether all containers have exited."""
        since = self.started
        if since is None:
            return False
        return all(play.seconds is not None and now >= since + play.seconds for play in self.plays.values())

    def exit_codes(self) -> list[int]:
        return [play.exit_code for play in self.plays.values()]

    def next_end(self, now: float) -> float | None:
        """Return the seconds until the next container exits, or None."""
        since = self.started if self.started is not None else now
        ends = [since + play.seconds - now for play in self.plays.values() if play.seconds is not None]
        return min((each for each in ends if each > 0), default=None)

    def restart(self, now: float) -> None:
        self.started = now
        self.restarts += 1


def restart_due(policy: str, exit_codes: list[int]) -> bool:
    """Return whether a finished pod is restarted."""
    return policy == "Always" or (policy == "OnFailure" and any(exit_codes))


def _conditions(pod: Json, ready: bool, now: str, reason: str = "") -> list[Json]:
    old = {each["type"]: each for each in (pod.get("status") or {}).get("conditions") or ()}
    result = []
    generation = pod["metadata"].get("generation", 1)
    for kind, holds in (
        ("PodReadyToStartContainers", ready),
        ("Initialized", True),
        ("Ready", ready),
        ("ContainersReady", ready),
        ("PodScheduled", True),
    ):
        status = "True" if holds else "False"
        before = old.get(kind)
        since = before["lastTransitionTime"] if before is not None and before["status"] == status else now
        condition: Json = {
            "type": kind,
            "status": status,
            "lastProbeTime": None,
            "lastTransitionTime": since,
            "observedGeneration": generation,
        }
        if reason and kind != "PodScheduled":
            condition["reason"] = reason
        result.append(condition)
    foreign = [each for kind, each in old.items() if kind not in {entry["type"] for entry in result}]
    return [*result, *foreign]


def running_status(pod: Json, running: Running, now: float) -> Json:
    """Return the status of a pod whose containers run (or some of them)."""
    since = timestamp(running.started or now)
    containers = []
    for container in pod["spec"]["containers"]:
        play = running.plays[container["name"]]
        over = play.seconds is not None and now >= (running.started or now) + play.seconds
        state: Json = {"running": {"startedAt": since}} if not over else {"terminated": _ended(running, play)}
        containers.append(_container(container, running, state, ready=not over))
    ready = all(each["ready"] for each in containers)
    return _whole(pod, running, now) | {
        "phase": "Running",
        "conditions": _conditions(pod, ready, timestamp(now)),
        "containerStatuses": containers,
    }


def finished_status(pod: Json, running: Running, now: float) -> Json:
    """Return the status of a pod all of whose containers have exited for good."""
    failed = any(running.exit_codes())
    containers = [
        _container(each, running, {"terminated": _ended(running, running.plays[each["name"]])}, ready=False)
        for each in pod["spec"]["containers"]
    ]
    reason = "PodFailed" if failed else "PodCompleted"
    conditions = _conditions(pod, False, timestamp(now), reason)
    return _whole(pod, running, now) | {
        "phase": "Failed" if failed else "Succeeded",
        "conditions": conditions,
        "containerStatuses": containers,
    }


def _whole(pod: Json, running: Running, now: float) -> Json:
    old = pod.get("status") or {}
    return {
        **old,
        "podIP": running.address,
        "podIPs": [{"ip": running.address}],
        "hostIP": running.host_address,
        "hostIPs": [{"ip": running.host_address}],
        "startTime": old.get("startTime") or timestamp(now),
    }


def _ended(running: Running, play: Play) -> Json:
    since = running.started or 0.0
    return {
        "exitCode": play.exit_code,
        "reason": "Error" if play.exit_code else "Completed",
        "startedAt": timestamp(since),
        "finishedAt": timestamp(since + (play.seconds or 0)),
    }


def _container(container: Json, running: Running, state: Mapping[str, Any], *, ready: bool) -> Json:
    name = container["name"]
    return {
        "name": name,
        "image": container.get("image", ""),
        "imageID": f"sandbox://{container.get('image', '')}",
        "containerID": f"sandbox://{name}",
        "ready": ready,
        "started": ready,
        "restartCount": running.restarts,
        "state": dict(state),
        "lastState": {},
    }
