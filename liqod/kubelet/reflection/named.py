"""Which config maps and secrets pods at a lender name: by volumes, environment, and credentials for images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from liqod.flow.observe import Latest, Subscribers
from liqod.kube.cache.informer import Informer
from liqod.kubelet.common.egress import Egress
from liqod.kubelet.common.views import HomePod, decoded
from liqod.model.ids import Key

Reference = tuple[str, str]
"""What a pod names: the setting of the kind, and the name."""
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")


def references(spec: Mapping[str, Any]) -> frozenset[Reference]:
    """Return what a pod names, optional or not. Pure."""
    return frozenset(found for found in _references(spec) if found[1])


def _references(spec: Mapping[str, Any]) -> Iterator[Reference]:
    for pull in spec.get("imagePullSecrets") or ():
        yield "secret", _name(pull)
    for kind in _CONTAINERS:
        for container in spec.get(kind) or ():
            for source in container.get("envFrom") or ():
                yield "configmap", _name(source.get("configMapRef"))
                yield "secret", _name(source.get("secretRef"))
            for variable in container.get("env") or ():
                source = variable.get("valueFrom") or {}
                yield "configmap", _name(source.get("configMapKeyRef"))
                yield "secret", _name(source.get("secretKeyRef"))
    for volume in spec.get("volumes") or ():
        yield from _in_volume(volume)


def _in_volume(volume: Mapping[str, Any]) -> Iterator[Reference]:
    """Yield what a volume names: config maps and secrets as such, in a projected one, and credentials of storage."""
    yield "configmap", _name(volume.get("configMap"))
    for source in (volume.get("projected") or {}).get("sources") or ():
        yield "configmap", _name(source.get("configMap"))
        yield "secret", _name(source.get("secret"))
    for source in volume.values():
        if isinstance(source, Mapping):
            yield "secret", str(source.get("secretName") or "")
            yield "secret", _name(source.get("secretRef"))
            yield "secret", _name(source.get("nodePublishSecretRef"))


def _name(reference: Any) -> str:
    return str(reference.get("name") or "") if isinstance(reference, Mapping) else ""


class NamedContents:
    """What the pods on all virtual nodes of one lender name; one that may leave home counts while it is on its node.

    ``revision`` changes when it is known, or not known any more, what the pods of another node name.
    """

    def __init__(self) -> None:
        self.revision: Latest[int] = Latest(0)
        self._pods: dict[str, Informer[HomePod]] = {}
        self._named: dict[tuple[str, Key], frozenset[Reference]] = {}
        self._counts: Counter[tuple[str, Key]] = Counter()
        self._subscribers: Subscribers[Callable[[str, Key], None]] = Subscribers()

    def subscribe(self, subscriber: Callable[[str, Key], None]) -> Callable[[], None]:
        """Call ``subscriber`` with setting and key of what is named first, or no more; return how to end that."""
        return self._subscribers.add(subscriber)

    def join(self, node: str, pods: Informer[HomePod], egress: Latest[Egress]) -> Callable[[], None]:
        """Take the pods on a node into account; return the function that ends that."""
        self._pods[node] = pods

        def note(pod: HomePod) -> None:
            meta = pod.metadata
            stays = egress.value.objection("pod", meta.namespace, meta.labels)
            self._note(node, meta.key, frozenset() if stays else references(decoded(pod.spec)))

        def changed(key: Key, old: HomePod | None, new: HomePod | None) -> None:
            if new is None:
                self._note(node, key, frozenset())
            elif old is None or bytes(old.spec) != bytes(new.spec) or old.metadata.labels != new.metadata.labels:
                note(new)

        def again(_: Egress) -> None:
            for pod in pods.items():
                note(pod)

        ends = [pods.subscribe(changed), egress.subscribe(again)]
        pods.when_synced().addCallbacks(lambda _: self._revise(), lambda _: None)

        def leave() -> None:
            for end in ends:
                end()
            # First of all: what this node's pods name is not known from now on, and nothing is deleted for that.
            if self._pods.get(node) is pods:
                del self._pods[node]
            for pod in [pod for other, pod in self._named if other == node]:
                self._note(node, pod, frozenset())
            self._revise()

        return leave

    def names(self, kind: str, key: Key, nodes: Iterable[str]) -> bool | None:
        """Return whether a pod names an object; None while the pods of some of these nodes are not known."""
        if self._counts[kind, key] > 0:
            return True
        known = all(node in self._pods and self._pods[node].synced for node in nodes)
        return False if known else None

    def _note(self, node: str, pod: Key, now: frozenset[Reference]) -> None:
        before = self._named.pop((node, pod), frozenset())
        if now:
            self._named[node, pod] = now
        for kind, name in before ^ now:
            key = kind, Key(pod.namespace, name)
            self._counts[key] += 1 if (kind, name) in now else -1
            if self._counts[key] <= 0:
                del self._counts[key]
            if self._counts[key] <= 1:
                for subscriber in self._subscribers:
                    subscriber(*key)

    def _revise(self) -> None:
        self.revision.set(self.revision.value + 1)
