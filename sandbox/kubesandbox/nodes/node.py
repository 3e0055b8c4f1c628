"""Simulated nodes: they register, renew their lease, and run pods without containers."""

from __future__ import annotations

import datetime
import ipaddress
import zlib
from typing import Final

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall

from kubesandbox.controllers.reconcile import Reconciler
from kubesandbox.kinds.kinds import LEASE_NAMESPACE, LEASES, NODES, PODS, Json, Key
from kubesandbox.kinds.quantity import parse_all, render_all
from kubesandbox.nodes.pod_logs import PodLogs
from kubesandbox.nodes.pod_status import Running, finished_status, restart_due, running_status
from kubesandbox.nodes.script import read
from kubesandbox.server.api import Api
from kubesandbox.server.requests import DeleteOptions
from kubesandbox.store.pod_index import PodIndex
from kubesandbox.store.state import Change

HEARTBEAT: Final = 10.0
LEASE_SECONDS: Final = 40
_POD_RANGES: Final = ipaddress.IPv4Address("10.128.0.0")
_POD_RANGE_SIZE: Final = 1024
_NODE_RANGES: Final = ipaddress.IPv4Address("172.18.0.0")
_CLUSTERS: Final = 512
_NODES_OF_CLUSTER: Final = 16


@attrs.frozen
class SandboxNode:
    """A simulated node: its capacity, labels and taints, and how long its pods take to start and to stop (seconds)."""

    name: str
    cpu: str = "8"
    memory: str = "16Gi"
    pods: str = "110"
    extended: dict[str, str] = attrs.field(factory=dict, kw_only=True)
    labels: dict[str, str] = attrs.field(factory=dict, kw_only=True)
    taints: tuple[dict[str, str], ...] = attrs.field(default=(), kw_only=True)
    start_delay: float = attrs.field(default=0.0, kw_only=True)
    stop_delay: float = attrs.field(default=0.0, kw_only=True)


class Nodes(Reconciler):
    """All simulated nodes of a cluster; keys are pods bound to one of them.

    The name of a cluster decides the addresses of its pods and nodes, so that clusters in one process have different
    ones, as clusters whose pods reach each other without translation do.
    """

    def __init__(self, name: str, api: Api, clock: IReactorTime, index: PodIndex) -> None:
        super().__init__("kubelet", api, clock)
        number = zlib.crc32(name.encode()) % _CLUSTERS
        self._pod_range = _POD_RANGES + number * _NODES_OF_CLUSTER * _POD_RANGE_SIZE
        self._node_range = _NODE_RANGES + number * _NODES_OF_CLUSTER + 2
        self.logs = PodLogs(api, clock)
        self._index = index
        self._nodes: dict[str, SandboxNode] = {}
        self._numbers: dict[str, int] = {}
        self._silent: set[str] = set()
        self._addresses: dict[str, int] = {}
        self._running: dict[str, Running] = {}
        self._heartbeat = LoopingCall(self._beat)
        self._heartbeat.clock = clock

    def startService(self) -> None:
        super().startService()
        self.watch(PODS, self._pod_changed)
        self._ends.append(self.store.subscribe(NODES, self._node_changed))
        self._heartbeat.start(HEARTBEAT, now=True)

    def stopService(self) -> None:
        super().stopService()
        self.logs.stop()
        if self._heartbeat.running:
            self._heartbeat.stop()

    def add(self, node: SandboxNode) -> None:
        """Add a node; one of the same name is replaced."""
        self._nodes[node.name] = node
        self._numbers.setdefault(node.name, len(self._numbers))
        self._silent.discard(node.name)
        self._register(node)
        self._renew(node.name)
        for pod in self._index.on_node(node.name):
            self.touch(Key(pod["metadata"]["namespace"], pod["metadata"]["name"]))

    def silence(self, name: str) -> None:
        """Simulate a power failure of a node: no heartbeat, its pods are not processed."""
        self._silent.add(name)

    def resume(self, name: str) -> None:
        """Resume a silenced node."""
        self._silent.discard(name)
        if name in self._nodes:
            self._register(self._nodes[name])
            self._renew(name)
            for pod in self._index.on_node(name):
                self.touch(Key(pod["metadata"]["namespace"], pod["metadata"]["name"]))

    def remove(self, name: str) -> None:
        """Remove a node from the cluster, including its object."""
        self._nodes.pop(name, None)
        self.store.remove(NODES, Key("", name))
        self.store.remove(LEASES, Key(LEASE_NAMESPACE, name))

    # -- the node itself ---------------------------------------------------------------------------------------------

    def _register(self, node: SandboxNode) -> None:
        key = Key("", node.name)
        status = self._status(node)
        found = self.store.get(NODES, key)
        if found is None:
            number = self._numbers[node.name]
            labels = {
                "kubernetes.io/hostname": node.name,
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                **node.labels,
            }
            cidr = f"{self._pod_range + number * _POD_RANGE_SIZE}/22"
            spec: Json = {"podCIDR": cidr, "podCIDRs": [cidr]}
            if node.taints:
                spec["taints"] = [dict(taint) for taint in node.taints]
            body = {"metadata": {"name": node.name, "labels": labels}, "spec": spec, "status": status}
            self.api.put_system(self.kind(NODES), key, body)
        elif (found.object.get("status") or {}).get("conditions") != status["conditions"]:
            self.store.put(NODES, key, found.object | {"status": {**(found.object.get("status") or {}), **status}})

    def _status(self, node: SandboxNode) -> Json:
        capacity = {
            "cpu": node.cpu,
            "memory": node.memory,
            "pods": node.pods,
            "ephemeral-storage": "100Gi",
            **node.extended,
        }
        capacity = render_all(parse_all(capacity))
        now = self.api.now()
        conditions = [
            ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ]
        return {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [
                {"type": "InternalIP", "address": self.address(node.name)},
                {"type": "Hostname", "address": node.name},
            ],
            "conditions": [
                {
                    "type": kind,
                    "status": status,
                    "reason": reason,
                    "message": message,
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": now,
                }
                for kind, status, reason, message in conditions
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": "",
                "containerRuntimeVersion": "sandbox://1",
                "kernelVersion": "sandbox",
                "kubeProxyVersion": "",
                "kubeletVersion": "v1.36.1-sandbox",
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": "Sandbox",
                "systemUUID": "",
            },
        }

    def address(self, name: str) -> str:
        """Return a node's address."""
        return str(self._node_range + self._numbers.get(name, 0))

    def _beat(self) -> None:
        for name in self._nodes:
            if name not in self._silent:
                self._renew(name)

    def _renew(self, name: str) -> None:
        key = Key(LEASE_NAMESPACE, name)
        moment = datetime.datetime.fromtimestamp(self.api.wall(), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": moment}
        found = self.store.get(LEASES, key)
        if found is not None:
            self.store.put(LEASES, key, found.object | {"spec": spec})
            return
        node = self.store.get(NODES, Key("", name))
        owners = []
        if node is not None:
            uid = node.object["metadata"]["uid"]
            owners.append({"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid})
        body = {"metadata": {"name": name, "ownerReferences": owners}, "spec": spec}
        self.api.put_system(self.kind(LEASES), key, body)

    def _node_changed(self, change: Change) -> None:
        if change.gone and change.key.name in self._nodes:
            # Like a kubelet with ``registerNode: false``: a deleted Node is not created again.
            self._nodes.pop(change.key.name)

    # -- pods --------------------------------------------------------------------------------------------------------

    def _pod_changed(self, change: Change) -> list[Key]:
        body = change.new.object
        if change.gone:
            self._running.pop(body["metadata"]["uid"], None)
            self.logs.forget(body["metadata"]["uid"])
            return []
        return [change.key] if (body.get("spec") or {}).get("nodeName") in self._nodes else []

    async def reconcile(self, key: Key) -> float | None:
        found = self.store.get(PODS, key)
        if found is None:
            return None
        pod = found.object
        node = self._nodes.get((pod.get("spec") or {}).get("nodeName", ""))
        if node is None or node.name in self._silent:
            return None
        if pod["metadata"].get("deletionTimestamp"):
            return await self._stop(key, pod, node)
        if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            return None
        uid = pod["metadata"]["uid"]
        running = self._running.get(uid)
        if running is None:
            running = self._running[uid] = self._begin(pod, node)
        now = self.api.wall()
        if now < running.starts:
            return running.starts - now
        return await self._run(key, pod, node, running, now)

    def _begin(self, pod: Json, node: SandboxNode) -> Running:
        spec = pod["spec"]
        annotations = pod["metadata"].get("annotations") or {}
        host = bool(spec.get("hostNetwork"))
        known = (pod.get("status") or {}).get("podIP")
        address = known or (self.address(node.name) if host else self._pod_address(node.name))
        plays = {each["name"]: read(each, annotations) for each in spec["containers"]}
        return Running(self.api.wall() + node.start_delay, address, self.address(node.name), plays)

    def _pod_address(self, name: str) -> str:
        count = self._addresses[name] = self._addresses.get(name, 0) + 1
        base = self._pod_range + self._numbers[name] * _POD_RANGE_SIZE
        return str(base + 1 + count % (_POD_RANGE_SIZE - 2))

    async def _run(self, key: Key, pod: Json, node: SandboxNode, running: Running, now: float) -> float | None:
        if running.started is None:
            running.started = now
            self.logs.started(pod, node.name, running, now)
        if running.finished(now):
            policy = pod["spec"].get("restartPolicy", "Always")
            if restart_due(policy, running.exit_codes()):
                running.restart(now)
                self.logs.started(pod, node.name, running, now)
            else:
                await self._write(key, finished_status(pod, running, now))
                self.logs.ended(pod["metadata"]["uid"])
                return None
        await self._write(key, running_status(pod, running, now))
        return running.next_end(now)

    async def _write(self, key: Key, status: Json) -> None:
        def changed(body: Json) -> Json:
            return body if body.get("status") == status else body | {"status": status}

        current = self.store.get(PODS, key)
        if current is not None and current.object.get("status") != status:
            await self.api.change(self.caller, self.kind(PODS), key, changed, "status")

    async def _stop(self, key: Key, pod: Json, node: SandboxNode) -> float | None:
        metadata = pod["metadata"]
        running = self._running.get(metadata["uid"])
        now = self.api.wall()
        if running is not None and running.started is not None and node.stop_delay:
            if running.stops is None:
                grace = metadata.get("deletionGracePeriodSeconds", 30)
                running.stops = now + min(node.stop_delay, grace)
            if now < running.stops:
                return running.stops - now
        self.logs.ended(metadata["uid"])
        await self.api.delete(self.caller, self.kind(PODS), key, DeleteOptions(grace=0, uid=metadata["uid"]))
        return None
