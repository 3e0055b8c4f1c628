"""Mutants that change nothing that anybody could notice, each with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import frozen

from tests.mutants.sample import Mutant, mutants


@frozen
class Equivalent:
    """A change of one line of one definition that no test can see."""

    module: str
    definition: str
    now: str
    reason: str


EQUIVALENT: Final = (
    Equivalent(
        "liqod.peering.session.protocol",
        "PeerConnection._dispatch",
        "if hello is not None and self._authenticating is None:",
        "a listener judges every peer that brings no token at its Hello, and nobody sends Join to a dialer",
    ),
    Equivalent(
        "liqod.peering.session.protocol",
        "PeerConnection._authenticate",
        "if own is not None and JOINING in own.features:",
        "only a dialer's greeting announces a token",
    ),
    Equivalent(
        "liqod.peering.unpeering",
        "UnpeeringController._wait",
        "if peer.state.waiting_for != sentence:",
        "only the end of a peering waits; the check of the state is for the type checker",
    ),
    Equivalent(
        "liqod.peering.records.tombstones",
        "Tombstones._is_over",
        "notified = parse_rfc3339(tombstone.notified) if not stays else None",
        "an empty text is no date",
    ),
    Equivalent(
        "liqod.peering.trust.rotation",
        "KeyRotation._audience",
        "knows=knows == wanted,",
        "without a next key no step asks which peers know it",
    ),
    Equivalent(
        "liqod.hosting.shadowpods.forge",
        "_resizable",
        "return [*(spec.containers), *sidecars]",
        "a spec without containers was refused when it was read; the type alone says that there may be none",
    ),
    Equivalent(
        "liqod.hosting.shadowpods.forge",
        "record_of",
        "images = [(c.name, c.image) for c in (*(spec.containers), *(spec.init_containers or ()))]",
        "a spec without containers was refused when it was read; the type alone says that there may be none",
    ),
    Equivalent(
        "liqod.hosting.shadowpods.controller",
        "ShadowPods._pod_changed",
        "elif (known := self._pods.get(key)) is not None and known.metadata.uid == old.metadata.uid:",
        "a change without an object after it has one before it",
    ),
    Equivalent(
        "liqod.kubelet.tokens.projection",
        "_without_mounts",
        "if not mounts:",
        "where no volume is gone every mount is kept, and the container is returned as it is",
    ),
    Equivalent(
        "liqod.cli.console.command_tree",
        "describe",
        'described["commands"] = {name: describe(one) for name, one in inside.items() if True}',
        "a group has every command that it lists; the type alone says that there may be none",
    ),
    Equivalent(
        "liqod.model.objects.node_selector",
        "_fulfils",
        "return value in values",
        "a label that a node has not is no text, and the values are texts",
    ),
    Equivalent(
        "liqod.config.load",
        "_belongs",
        "if any(field.encode_name == key for field in msgspec.structs.fields(kind))",
        "a key that its own section has is not unknown there, and nobody asks where it belongs",
    ),
    Equivalent(
        "liqod.fabric.agent.kernel.routes",
        "wanted_routes",
        "network: Route(desired.device, link.mtu if 0 <= link.mtu < desired.mtu else 0, "
        'sources.get(network.version, ""))',
        "0 is what a link without an MTU of its own has, and what is written for it",
    ),
    Equivalent(
        "liqod.cli.workloads.dry_run",
        "preview",
        "wanted = {key: value for key, value in {**kept, **spec}.items() if True}",
        "of an offloading's fields only those may be None that are None where there is none",
    ),
    Equivalent(
        "liqod.agent.account.rights",
        "_reflection",
        "if not (reflection.networkpolicy.workers):",
        "hosting, peering and home need all of these rights, whatever is reflected",
    ),
    Equivalent(
        "liqod.peering.lending.cluster_info",
        "ClusterInfo._ask",
        "if not attempt:",
        "the first answer is over by the second attempt, and a version that becomes known notifies by itself",
    ),
    Equivalent(
        "liqod.hosting.tenants.policies",
        "_ingress_rules",
        'f"!has(object.spec.rules) || object.spec.rules.all(r, has(r.host) && [r.host].all(h, {granted}))",',
        "of a list of one, all and some are the same",
    ),
)


def stale(sources: Mapping[str, bytes]) -> list[Equivalent]:
    """Return those of which the code has no such change any more: they are to be written again, or to go."""
    made = {
        module: {(one.change.definition, one.now) for one in mutants(module, sources[module])} for module in sources
    }
    return [known for known in EQUIVALENT if (known.definition, known.now) not in made.get(known.module, ())]


def reason_of(mutant: Mutant) -> str:
    """Return why a mutant is known to be equivalent, else nothing."""
    for known in EQUIVALENT:
        if (known.module, known.definition, known.now) == (mutant.module, mutant.change.definition, mutant.now):
            return known.reason
    return ""
