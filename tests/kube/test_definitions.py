"""Tests of the texts in liqod's definitions, which ``kubectl explain`` shows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from liqod.discovery.unicast import MAX_DELAY, MAX_INSTANCES
from liqod.kube import manifests
from liqod.model.records.home_policies import MAX_ADDRESSES
from liqod.model.records.network import MAX_OTHERS
from liqod.model.records.offer import MAX_CLASSES, MAX_LABELS, MAX_RESOURCES
from liqod.model.records.offer_rules import MAX_TTL
from liqod.model.records.spillover import MAX_PEERS
from liqod.model.records.views import MAX_DIRECT_ENDPOINTS, MAX_SLICES
from liqod.wire.check import MAX_ENDPOINTS, MAX_MINOR, MAX_NETWORKS, MAX_SLICE_RESOURCES
from liqod.wire.framing import FrameLimits

FEWEST_WORDS: Final = 4
TOLERATED: Final = "resourceslices.sharing.liqo.io.spec.virtualNode.offloadingPatch.tolerations[].tolerationSeconds"
UNBOUNDED: Final = {
    "advertisements.sharing.liqo.io.spec.epoch maximum": "a counter: any int64, as the protocol has it",
    "advertisements.sharing.liqo.io.spec.seq maximum": "likewise",
    "foreignclusters.discovery.liqo.io.status.lent.epoch maximum": "likewise",
    "foreignclusters.discovery.liqo.io.status.lent.seq maximum": "likewise",
    "foreignclusters.discovery.liqo.io.status.lent.slices[].revision maximum": "likewise",
    "namespaceoffloadings.offloading.liqo.io.status.observedGeneration maximum": "the API server's counter",
    "networkconfigs.net.liqo.io.status.direct[].request maximum": "a counter, as in the protocol",
    "resourceslices.sharing.liqo.io.status.observedGeneration maximum": "the API server's counter",
    f"{TOLERATED} minimum": "as in pods",
    f"{TOLERATED} maximum": "as in pods",
    "shadownetworkpolicysets.offloading.liqo.io.spec.policies[].spec properties": "the compiler bounds it",
    "shadowpods.offloading.liqo.io.spec.pod properties": "256 KiB, in the code",
    "virtualnodes.offloading.liqo.io.spec.offloadingPatch.tolerations[].tolerationSeconds minimum": "as in pods",
    "virtualnodes.offloading.liqo.io.spec.offloadingPatch.tolerations[].tolerationSeconds maximum": "as in pods",
}
"""What has no bound in its definition, and why not."""
OF_THE_CODE: Final = {
    "advertisements.sharing.liqo.io.spec.offer.resources maxProperties": MAX_RESOURCES,
    "advertisements.sharing.liqo.io.spec.offer.labels maxProperties": MAX_LABELS,
    "advertisements.sharing.liqo.io.spec.offer.storageClasses maxItems": MAX_CLASSES,
    "advertisements.sharing.liqo.io.spec.offer.ingressClasses maxItems": MAX_CLASSES,
    "advertisements.sharing.liqo.io.spec.offer.loadBalancerClasses maxItems": MAX_CLASSES,
    "advertisements.sharing.liqo.io.spec.offer.gateways maxItems": MAX_CLASSES,
    "advertisements.sharing.liqo.io.spec.timeToLive maximum": MAX_TTL,
    "foreignclusters.discovery.liqo.io.status.lent.resources maxProperties": FrameLimits().items,
    "foreignclusters.discovery.liqo.io.status.lent.slices maxItems": MAX_SLICES,
    "resourceslices.sharing.liqo.io.spec.resources maxProperties": MAX_SLICE_RESOURCES,
    "resourceslices.sharing.liqo.io.status.resources maxProperties": MAX_SLICE_RESOURCES,
    "namespaceoffloadings.offloading.liqo.io.spec.spillover.peers maxItems": MAX_PEERS,
    "networkconfigs.net.liqo.io.status.remote.podCIDRs maxItems": MAX_NETWORKS,
    "networkconfigs.net.liqo.io.status.remote.serviceCIDRs maxItems": MAX_NETWORKS,
    "networkconfigs.net.liqo.io.status.remote.endpoints maxItems": MAX_ENDPOINTS,
    "networkconfigs.net.liqo.io.status.remote.mtu maximum": MAX_MINOR,
    "networkconfigs.net.liqo.io.status.others maxItems": MAX_OTHERS,
    "searchdomains.discovery.liqo.io.status.found maxItems": MAX_INSTANCES,
    "searchdomains.discovery.liqo.io.status.refreshSeconds maximum": MAX_DELAY,
    "shadowendpointslices.offloading.liqo.io.spec.direct maxItems": MAX_DIRECT_ENDPOINTS,
    "shadownetworkpolicysets.offloading.liqo.io.spec.pods[].addresses maxItems": MAX_ADDRESSES,
    "shadownetworkpolicysets.offloading.liqo.io.spec.pods[].direct maxItems": MAX_ADDRESSES,
}
"""Bounds that the code applies as well."""
KEYWORDS: Final = {
    "additionalProperties",
    "default",
    "description",
    "enum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "nullable",
    "pattern",
    "properties",
    "required",
    "type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
}
MAX_BYTES: Final = 128 * 1024
"""Bytes of a definition as JSON: far under what etcd stores, and kubectl keeps a second copy in an annotation."""


def versions() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each version of each definition, with its name."""
    for definition in manifests.definitions():
        for version in definition["spec"]["versions"]:
            yield f"{definition['metadata']['name']} {version['name']}", version


def properties(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every property of a schema with its path, also those in items of lists and in values of maps."""
    for name, inner in (schema.get("properties") or {}).items():
        yield f"{path}.{name}", inner
        yield from properties(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from properties(schema[key], f"{path}[]")


def every(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield a schema and all schemas in it with their paths: ``.a`` is a property, ``[]`` an item, ``{}`` a value."""
    yield path, schema
    for name, inner in (schema.get("properties") or {}).items():
        yield from every(inner, f"{path}.{name}")
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(key), dict):
            yield from every(schema[key], f"{path}{mark}")


def missing(schema: Mapping[str, Any]) -> list[str]:
    """Return the bounds that a schema should have, and has not."""
    match schema.get("type"):
        case "array":
            wanted = ["maxItems"]
        case "object" if schema.get("x-kubernetes-preserve-unknown-fields"):
            wanted = ["properties"]
        case "object" if "properties" not in schema:
            wanted = ["maxProperties"]
        case "string" if "enum" not in schema:
            wanted = ["maxLength"]
        case "integer":
            wanted = ["minimum", "maximum"]
        case "string" | "object" | "boolean":
            wanted = []
        case _:
            wanted = ["type"]
    return [one for one in wanted if one not in schema]


def is_sentence(text: str) -> bool:
    """Return whether a text reads as a sentence: a capital, some words, a period, and all on one line."""
    is_long_enough = len(text.split()) >= FEWEST_WORDS
    return is_long_enough and text[0].isupper() and text.endswith(".") and "\n" not in text


class DescriptionTests(SynchronousTestCase):
    """What definitions say about their fields."""

    def test_every_field_is_described(self) -> None:
        """Every property has a description that is a sentence, and so has the record as a whole."""
        found = 0
        wrong = []
        for name, version in versions():
            schema = version["schema"]["openAPIV3Schema"]
            for path, field in (("", schema), *properties(schema)):
                found += 1
                if not is_sentence(field.get("description") or ""):
                    wrong.append(f"{name}{path}: {field.get('description')!r}")
        self.assertGreater(found, 300)
        self.assertEqual(wrong, [])

    def test_every_column_is_described(self) -> None:
        """Every column that kubectl prints has a description that is a sentence."""
        wrong = [
            f"{name}: {column['name']}: {column.get('description')!r}"
            for name, version in versions()
            for column in version.get("additionalPrinterColumns") or ()
            if not is_sentence(column.get("description") or "")
        ]
        self.assertEqual(wrong, [])

    def test_nothing_else_is_in_a_schema(self) -> None:
        """Every word of a schema is one that an API server knows: it drops others."""
        found = {
            word for _, version in versions() for _, one in every(version["schema"]["openAPIV3Schema"]) for word in one
        }
        self.assertEqual(found - KEYWORDS, set())

    def test_definitions_stay_small(self) -> None:
        """Descriptions do not make a definition too large to be stored, or to be applied by kubectl."""
        sizes = {one["metadata"]["name"]: len(json.dumps(one)) for one in manifests.definitions()}
        self.assertEqual({name: size for name, size in sizes.items() if size > MAX_BYTES}, {})


class BoundTests(SynchronousTestCase):
    """How large each field may become."""

    def fields(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for name, version in versions():
            for path, schema in every(version["schema"]["openAPIV3Schema"]):
                yield name.partition(" ")[0] + path, schema

    def test_everything_is_bounded(self) -> None:
        """Every list, map, text and number has a bound, but for a few with a reason."""
        unbounded = {f"{path} {bound}" for path, schema in self.fields() for bound in missing(schema)}
        self.assertEqual(unbounded ^ set(UNBOUNDED), set())

    def test_bounds_of_the_code(self) -> None:
        """What the code bounds as well has the same bound."""
        fields = dict(self.fields())
        for name, bound in OF_THE_CODE.items():
            path, _, word = name.rpartition(" ")
            self.assertEqual(fields[path].get(word), bound, name)

    def test_conditions(self) -> None:
        """There is one condition of a type, in every list of conditions."""
        lists = [
            (path, schema)
            for path, schema in self.fields()
            if schema.get("type") == "array" and "lastTransitionTime" in schema["items"].get("properties", ())
        ]
        self.assertEqual(len(lists), 6)
        for path, schema in lists:
            self.assertEqual(schema.get("x-kubernetes-list-type"), "map", path)
            self.assertEqual(schema.get("x-kubernetes-list-map-keys"), ["type"], path)


class TwiceTests(SynchronousTestCase):
    """What two definitions have: an API server drops what one of them lacks without a word."""

    def test_the_node_of_a_slice(self) -> None:
        """What is particular to a virtual node has the same fields and rules in a ResourceSlice as in a VirtualNode."""
        spec = {
            name: version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
            for name, version in versions()
            if name.startswith(("resourceslices.", "virtualnodes."))
        }
        node = spec["virtualnodes.offloading.liqo.io v1beta1"]
        of_slice = spec["resourceslices.sharing.liqo.io v1alpha1"]["virtualNode"]["properties"]
        # The peer and the amount are the slice's own; the name may be left out, and cannot be changed.
        self.assertEqual(set(of_slice), set(node) - {"clusterID", "limits"})
        for name in sorted(set(of_slice) - {"nodeName"}):
            self.assertEqual(of_slice[name], node[name], name)
