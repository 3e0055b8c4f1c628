"""What a tenant attempts with the objects that it writes itself, and with namespaces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from liqod.model.names import (
    FULL_CONTENTS_LABEL,
    FULL_LABEL,
    HELD_WRITES_LABEL,
    REMOTE_CLUSTER_LABEL,
    TENANT_NAMESPACE_LABEL,
)
from liqod.model.records.name_service import LABEL as NAME_SERVICE
from tests.variations import routes, services, storage
from tests.variations.variation import ForbiddenObject
from tests.weakened.attempt import DAEMON, TENANT, Attempt, asked, at_first_and_later, in_turns, named, owned

_ROUTE: Final = routes.routes()[0].harmless
_HARMLESS: Final[Mapping[str, Mapping[str, Any]]] = {
    "configmaps": {"data": {"a": "b"}},
    "secrets": {"type": "Opaque", "data": {"a": "Yg=="}},
    "services": {"spec": {"type": "ClusterIP", "ports": [{"port": 80}]}},
    "persistentvolumeclaims": storage.claims()[0].harmless,
    "ingresses": services.ingresses()[0].harmless,
    "httproutes": _ROUTE,
    "grpcroutes": _ROUTE,
}
"""An object of each kind that other controllers read."""
_RECORDS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "shadowpods": ("web", {"spec": {"pod": {"containers": [{"name": "main", "image": "a"}]}}}),
    "shadowendpointslices": ("web", {"spec": {"template": {"addressType": "IPv4", "endpoints": [], "ports": []}}}),
    "shadownetworkpolicysets": ("home", {"spec": {"policies": []}}),
}
"""A record of each kind, with its name."""
_METADATA: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("an annotation of a controller", {"annotations": {"external-dns.alpha.kubernetes.io/hostname": "x"}}),
    ("a label of a controller", {"labels": {"velero.io/exclude-from-backup": "x"}}),
    ("many annotations", {"annotations": {f"a{n}": "b" for n in range(65)}}),
    ("many labels", {"labels": {f"a{n}": "b" for n in range(65)}}),
    ("long annotations", {"annotations": {"a": "b" * 65_537}}),
    ("to stay for ever", {"finalizers": ["example.com/never"]}),
    ("an owner", {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "0"}]}),
)
_LONG: Final = ("many annotations", "many labels", "long annotations")
_SERVICES: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("a field of tomorrow", {"spec": {"addressesOfOthers": ["192.0.2.1"]}}),
    ("a field of tomorrow of a port", {"spec": {"ports": [{"port": 80, "hostPort": 22}]}}),
    ("to be the name service", {"metadata": {"labels": {NAME_SERVICE: "1"}}, "spec": {"ports": [{"port": 80}]}}),
    ("many ports", {"spec": {"ports": [{"port": port} for port in range(1, 66)]}}),
)
_BACKEND: Final = {"service": {"name": "web", "port": {"number": 80}}}
_HOST: Final = f"www.{services.HOSTS}"


def _path(**fields: Any) -> dict[str, Any]:
    path = {"path": "/", "pathType": "Prefix", "backend": _BACKEND, **fields}
    return {"host": _HOST, "http": {"paths": [path]}}


_INGRESSES: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("a field of tomorrow", {"ingressClassName": "public", "rules": [_path()], "hostsOfOthers": ["a"]}),
    ("a field of tomorrow of a rule", {"ingressClassName": "public", "rules": [{**_path(), "weight": 1}]}),
    ("lines of a configuration", {"ingressClassName": "public", "rules": [_path(path="/;}} x")]}),
)
_MATCHES: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("a match of tomorrow", {"sourceOfOthers": "a"}),
    ("regular expressions of headers", {"headers": [{"type": "RegularExpression", "name": "a", "value": "(a+)+"}]}),
)
_METHOD: Final = {"method": {"type": "RegularExpression", "service": "a", "method": "b"}}
_CLAIM_FIELDS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("a field of tomorrow", {"volumeOfOthers": "a"}),
    ("data of others", {"dataSourceRef": {"kind": "A", "name": "a", "namespace": "default"}}),
    ("the class of the lender's own pods", {"storageClassName": "liqo"}),
)
_CONTROLLER: Final = "system:serviceaccount:kube-system:ephemeral-volume-controller"
_OF_A_POD: Final = {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "0"}]}
MOST_CONTAINERS: Final = 2
"""Those of a pod in a test: to evaluate 256 takes minutes."""
_MAIN: Final = {"name": "main", "image": "a"}
_TEMPLATE: Final = {"volumeClaimTemplate": {"spec": {"storageClassName": "disks", "volumeName": "others"}}}
_PODS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("very many containers", {"containers": [{**_MAIN, "name": f"c{n}"} for n in range(MOST_CONTAINERS + 1)]}),
    ("what no release knows", {"rootOfNode": True}),
    ("a field of tomorrow, deep in it", {"securityContext": {"rootOfNode": True}}),
    ("a probe from the node", {"containers": [{**_MAIN, "livenessProbe": {"httpGet": {"host": "127.0.0.1"}}}]}),
    ("another runtime", {"runtimeClassName": "strong"}),
    ("a token of an account", {"automountServiceAccountToken": True, "serviceAccountName": "strong"}),
    ("to be compared for long", {"tolerations": [{"key": f"k{n}"} for n in range(513)]}),
    ("the disk of the node", {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
    ("a field of tomorrow of a volume", {"volumes": [{"name": "v", "emptyDir": {"disk": "sda"}}]}),
    ("a token in a volume", {"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {}}]}}]}),
    ("a volume of others by template", {"volumes": [{"name": "v", "ephemeral": _TEMPLATE}]}),
)
_FAMILIES: Final[Mapping[str, Sequence[ForbiddenObject]]] = {
    "services": services.services(),
    "ingresses": services.ingresses(),
    "httproutes": routes.routes(),
    "persistentvolumeclaims": storage.claims(),
    "secrets": [one for one in storage.secrets() if one.words != "of nobody"],
}


def attempts() -> Iterator[Attempt]:
    """Yield all attempts of tenants; those that a grant of hosts and gateways leaves are among them."""
    yield from in_turns([*_written(), *_records(), *_fullness(), *_metadata()])
    yield from _claims_of_pods()
    yield from _namespaces()


def of_hosts() -> Iterator[Attempt]:
    """Yield ordinary objects for hosts, which are refused where no hosts are granted."""

    def made() -> Iterator[Attempt]:
        for resource in ("ingresses", "httproutes", "grpcroutes"):
            # Twice: each way by each of both users.
            for body in [owned(_HARMLESS[resource])] * 2:
                yield asked("where none is granted", resource, body)
            yield asked("where none is granted", resource, body, body)

    yield from in_turns(made())


def _defaulted(resource: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object as an API server shows it to policies: a service has a type."""
    return owned({**body, "spec": {"type": "ClusterIP", **body["spec"]}} if resource == "services" else body)


def _written() -> Iterator[Attempt]:
    for resource, objects in _FAMILIES.items():
        harmless = owned(_HARMLESS[resource])
        for position, one in enumerate(objects):
            old = owned(one.harmless) if resource != "services" else harmless
            # By turns, for time: an evaluation takes tens of milliseconds.
            yield asked(one.words, resource, _defaulted(resource, one.desired), old if position % 2 else None)
    of_account = {"annotations": {"kubernetes.io/service-account.name": "default"}}
    token = owned({"metadata": of_account, "type": "kubernetes.io/service-account-token"})
    yield from at_first_and_later("a token of any account", "secrets", token, owned(_HARMLESS["secrets"]))
    for words, body in _SERVICES:
        yield from at_first_and_later(words, "services", _defaulted("services", body), owned(_HARMLESS["services"]))
    balanced = {"spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}
    yield asked("another type", "services", owned(balanced), owned(_HARMLESS["services"]))
    yield from at_first_and_later(
        "ssh of the nodes",
        "services",
        owned({"spec": {"type": "LoadBalancer", "ports": [{"port": 22}]}}),
        owned(balanced),
    )
    for words, spec in _INGRESSES:
        yield from at_first_and_later(words, "ingresses", owned({"spec": spec}), owned(_HARMLESS["ingresses"]))
    for words, fields in _CLAIM_FIELDS:
        bad = owned({"spec": {**_HARMLESS["persistentvolumeclaims"]["spec"], **fields}})
        yield from at_first_and_later(words, "persistentvolumeclaims", bad, owned(_HARMLESS["persistentvolumeclaims"]))
    for resource in ("httproutes", "grpcroutes"):
        for words, match in (*_MATCHES, *((("any method", _METHOD),) if resource == "grpcroutes" else ())):
            rules = [{**_ROUTE["spec"]["rules"][0], "matches": [match]}]
            bad = owned({"spec": {**_ROUTE["spec"], "rules": rules}})
            yield from at_first_and_later(words, resource, bad, owned(_ROUTE))
        alpha = {"version": "v1alpha2"}
        yield from at_first_and_later("another version", resource, owned(_ROUTE), owned(_ROUTE), **alpha)
    tomorrow = owned({"spec": {**_ROUTE["spec"], "gatewaysOfOthers": ["a"]}})
    yield from at_first_and_later("a field of tomorrow", "httproutes", tomorrow, owned(_ROUTE))


def _metadata() -> Iterator[Attempt]:
    for resource, body in _HARMLESS.items():
        for words, metadata in _METADATA:
            # Those are long, and what holds of one kind holds of all.
            if words not in _LONG or resource == "configmaps":
                yield from at_first_and_later(words, resource, owned({**body, "metadata": metadata}), owned(body))
        nobodys = named(body)
        yield from at_first_and_later("of nobody", resource, nobodys, nobodys)
        yield asked("of nobody", resource, None, nobodys)
    for resource, body in {**_HARMLESS, **{kind: body for kind, (_, body) in _RECORDS.items()}}.items():
        for options in ({"propagationPolicy": "Orphan"}, {"orphanDependents": True}):
            yield asked("to leave dependents", resource, None, owned(body), options=options)


def _records() -> Iterator[Attempt]:
    for resource, (name, body) in _RECORDS.items():
        for words, metadata in _METADATA[-2:]:
            bad = named({**body, "metadata": metadata}, name)
            yield from at_first_and_later(words, resource, bad, named(body, name))
    good = named(_RECORDS["shadowpods"][1])
    for words, fields in _PODS:
        bad = named({"spec": {"pod": {"containers": [_MAIN], **fields}}})
        yield from at_first_and_later(words, "shadowpods", bad, good)
    labelled = named({**good, "metadata": {"labels": {"argocd.argoproj.io/instance": "x"}}})
    yield from at_first_and_later("to be another's application", "shadowpods", labelled, good)
    name, body = _RECORDS["shadownetworkpolicysets"]
    yield from at_first_and_later("another set", "shadownetworkpolicysets", named(body, "other"), named(body, "other"))
    for one in storage.slices("192.0.2.7"):
        if one.desired["spec"]["template"]["addressType"] == "FQDN":
            yield from at_first_and_later(one.words, "shadowendpointslices", named(one.desired), named(one.harmless))
    ports = [{"port": port} for port in range(101)]
    endpoints = [{"addresses": ["172.30.0.7"]}] * 100
    many = {"spec": {"template": {"addressType": "IPv4", "endpoints": endpoints, "ports": ports}}}
    yield from at_first_and_later(
        "many destinations", "shadowendpointslices", named(many), named(_RECORDS["shadowendpointslices"][1])
    )


def _fullness() -> Iterator[Attempt]:
    """Yield what is asked for where all of a kind, of bytes or of a time is used up."""
    for resource, (name, body) in _RECORDS.items():
        more = {"namespace_labels": {**TENANT, FULL_LABEL: resource}}
        yield asked("one more than it may have", resource, named(body, name), **more)
        more = {"namespace_labels": {**TENANT, FULL_LABEL: "bytes"}}
        yield from at_first_and_later("more bytes", resource, named(body, name), named(body, name), **more)
    for resource in ("configmaps", "secrets"):
        old = owned(_HARMLESS[resource])
        longer = owned({**_HARMLESS[resource], "data": {"a": "b" * 100}})
        for value in ("growth", "changes"):
            more = {"namespace_labels": {**TENANT, FULL_CONTENTS_LABEL: value}}
            yield from at_first_and_later(f"more than it has room for ({value})", resource, longer, old, **more)
        yield asked("another text", resource, old, old, **more)
    everything = {**{kind: owned(body) for kind, body in _HARMLESS.items()}}
    everything |= {kind: named(body, name) for kind, (name, body) in _RECORDS.items()}
    for resource, new in everything.items():
        more = {"namespace_labels": {**TENANT, HELD_WRITES_LABEL: "x"}}
        yield from at_first_and_later("one write more", resource, new, new, **more)


def _claims_of_pods() -> Iterator[Attempt]:
    """Yield claims that the controller manager makes out of a pod's template."""
    for one in storage.claims():
        if one.desired["spec"] == one.harmless["spec"] and "annotation" not in one.words:
            continue  # The daemon takes such metadata out of the template.
        metadata = {**_OF_A_POD, **one.desired.get("metadata", {})}
        for user in (_CONTROLLER, "system:kube-controller-manager"):
            made = owned({**one.desired, "metadata": metadata})
            yield asked(f"{one.words}, by a pod", "persistentvolumeclaims", made, user=user)
    for words, fields in _CLAIM_FIELDS:
        spec = {**_HARMLESS["persistentvolumeclaims"]["spec"], **fields}
        made = owned({"metadata": _OF_A_POD, "spec": spec})
        yield asked(f"{words}, by a pod", "persistentvolumeclaims", made, user=_CONTROLLER)


def _namespaces() -> Iterator[Attempt]:
    """Yield what somebody who may make namespaces, and the daemon's thief, do with those of tenants."""
    secured = {
        "pod-security.kubernetes.io/enforce": "baseline",
        "pod-security.kubernetes.io/enforce-version": "latest",
    }

    def space(labels: Mapping[str, str], name: str = "x") -> dict[str, Any]:
        return {"metadata": {"name": name, "labels": labels}}

    mine: dict[str, Any] = {"namespace": "", "namespace_labels": {}}
    for resource in ("namespaces", "namespaces/status", "namespaces/finalize"):
        for label in (REMOTE_CLUSTER_LABEL, TENANT_NAMESPACE_LABEL):
            new = space({label: "rome", **secured})
            yield from at_first_and_later("to be a tenant's", resource, new, space({}), user="developer", **mine)
        bad = space({**TENANT, **secured, "pod-security.kubernetes.io/enforce": "privileged"})
        rights: dict[str, Any] = {**mine, "rights": frozenset({"patch foreignclusters.discovery.liqo.io"})}
        yield from at_first_and_later(
            "privileged pods", resource, bad, space({**TENANT, **secured}), user=DAEMON, **rights
        )
    yield asked("a name of a tenant's", "namespaces", space({}, "liqo-tenant-x"), user="developer", **mine)
