"""All facts of a cluster from what was seen of it, and which of those found earlier stay. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from liqod.config.schema import Settings
from liqod.facts import addresses, networks, software
from liqod.facts.observed import ObservedCluster
from liqod.model.records.facts import API_SERVER_NAMES, MAX_TEXT, MAX_VALUES, Fact, fact_of


def decide(seen: ObservedCluster, settings: Settings, before: Sequence[Fact] = ()) -> list[Fact]:
    """Return the facts, each once, within the bounds of the record.

    What was known ``before`` and is not found now stays as long as something could not be read: its source may be
    that. The certificate of the API server is the source of its names alone.
    """
    return [_kept(_bounded(fact), fact_of(before, fact.name), seen) for fact in _all(seen, settings)]


def _kept(fact: Fact, before: Fact, seen: ObservedCluster) -> Fact:
    unseen = not seen.is_complete or (fact.name == API_SERVER_NAMES and seen.server_names is None)
    return before if unseen and before.values and not fact.values else fact


def _all(seen: ObservedCluster, settings: Settings) -> Iterator[Fact]:
    plugin = software.plugin(seen)
    pods = networks.pod_networks(seen, settings, next(iter(plugin.values), ""))
    services = networks.service_networks(seen, settings)
    yield software.distribution(seen)
    yield from software.versions(seen)
    yield plugin
    yield software.proxy(seen)
    yield pods
    yield services
    yield networks.domain(seen)
    yield addresses.api_server(seen, settings, services.values)
    yield addresses.api_server_addresses(seen)
    yield addresses.api_server_names(seen)
    yield addresses.daemon_addresses(seen, settings, pods=pods.values, services=services.values)


def _bounded(fact: Fact) -> Fact:
    values = [value for value in fact.values if len(value) <= MAX_TEXT][:MAX_VALUES]
    return msgspec.structs.replace(
        fact,
        state=fact.state if values else "Unknown",
        values=values,
        source=fact.source[:MAX_TEXT],
        message=fact.message[:MAX_TEXT],
    )
