"""Decides, as a lender, whether this cluster connects a home's pods here straight with those at another lender. Pure.

What home asks is checked against what the other lender itself announced here as a peer: its key, its networks. Nothing
passes before the other lender said, in its own session, that it agreed for the same home: no home can have one end open
for itself while the other one is another home's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from liqod.model.ids import ClusterID
from liqod.model.records.network import (
    MAX_DIRECT,
    MAX_NETWORKS,
    DirectGrant,
    Network,
    NetworkConfig,
    TunnelEndpoint,
    paired,
    parse_networks,
    shift,
)
from liqod.model.records.offer import Refusal
from liqod.wire.events import DirectAsk, DirectOffer

CONFIRM_WITHIN: Final = 60.0
"""Seconds in which the other lender has to agree as well, before the tunnel is free for another home again."""


@attrs.frozen(kw_only=True)
class PairFacts:
    """What is known of a home and another lender.

    ``borrows``: whether home borrows here, None while that is not known. ``networks`` is the exchange with home,
    ``config`` the one with the other lender, ``tunnel`` the tunnel to it. ``said``: whether the other lender said that
    it agreed for this home; None while it says nothing, as without a session: what was confirmed stays so. ``waited``
    are the seconds since home asked.
    """

    own: ClusterID
    home: ClusterID
    other: ClusterID
    willing: bool
    borrows: bool | None
    networks: NetworkConfig | None
    config: NetworkConfig | None
    tunnel: TunnelEndpoint | None
    said: bool | None = None
    waited: float = CONFIRM_WITHIN

    @property
    def grant(self) -> DirectGrant | None:
        """What is on record for this home."""
        granted = self.config.status.direct if self.config is not None else ()
        return next((one for one in granted if one.home == self.home), None)


@attrs.frozen
class Terms:
    """``grant`` is to be on record (None: nothing). ``refusal`` is why there is none; ``agreed``: our end is set up."""

    grant: DirectGrant | None = None
    refusal: Refusal | None = None
    agreed: bool = False


def offer_to(home: ClusterID, networks: NetworkConfig | None, *, willing: bool) -> DirectOffer:
    """Return the offer to a home: this cluster's end of tunnels; without endpoints where there is none to offer."""
    nothing = DirectOffer(home, [], "", [], 0)
    if not willing or networks is None or networks.status.phase != "Agreed":
        return nothing
    local = networks.spec.local
    if not local.endpoints or not local.public_key:
        return nothing
    return DirectOffer(home, list(local.endpoints), local.public_key, list(local.pod_cidrs), local.mtu)


def decide(facts: PairFacts, ask: DirectAsk | None) -> Terms:
    """Return the terms for a home and another lender; ``ask`` None: only what is on record is judged again."""
    before = facts.grant
    if ask is None and before is None:
        return Terms()
    if facts.willing and facts.borrows is None:
        return Terms(grant=before)
    try:
        networks, config = _check(facts)
        grant = _granted(networks, config, ask) if ask is not None else before
    except Refusal as refusal:
        return Terms(refusal=refusal)
    if grant is None:
        return Terms()
    if before is not None and before.confirmed and facts.said is False:
        return Terms(refusal=Refusal("EndedThere", "the other lender ended it"))
    confirmed = facts.said if facts.said is not None else before is not None and before.confirmed
    if not confirmed and facts.waited >= CONFIRM_WITHIN:
        return Terms(refusal=Refusal("NotConfirmed", "the other lender has not agreed in time"))
    grant = DirectGrant(home=grant.home, request=grant.request, pod_cidrs=grant.pod_cidrs, confirmed=confirmed)
    tunnel = facts.tunnel
    is_up = tunnel is not None and tunnel.status.phase == "Connected" and facts.home in tunnel.status.direct
    return Terms(grant=grant, agreed=confirmed and is_up and before == grant)


def _check(facts: PairFacts) -> tuple[NetworkConfig, NetworkConfig]:
    """Raise Refusal where there can be no direct connection; return the exchanges with home and the other lender."""
    config, networks, tunnel = facts.config, facts.networks, facts.tunnel
    if not facts.willing:
        raise Refusal("DirectOff", 'direct = "never" under [network] is set here')
    if facts.borrows is False:
        raise Refusal("NotABorrower", "you borrow nothing here")
    if facts.other in (facts.own, facts.home):
        raise Refusal("NotAPair", "a direct connection is between two other clusters that lend")
    if networks is None or networks.status.phase != "Agreed":
        raise Refusal("NoTunnelToHome", "there is no tunnel between us")
    if config is None or config.status.phase != "Agreed":
        raise Refusal("NotAPeer", "the other lender is no peer with a tunnel here")
    if tunnel is not None and tunnel.status.phase == "Error":
        raise Refusal("TunnelDown", f"packets do not cross to the other lender: {tunnel.status.reason}")
    if len({one.home for one in config.status.direct} | {facts.home}) > MAX_DIRECT:
        raise Refusal("PairInUse", "the tunnel between the lenders serves another home already")
    return networks, config


def _granted(networks: NetworkConfig, config: NetworkConfig, ask: DirectAsk) -> DirectGrant:
    """Return what is granted to a home that asks; raises Refusal."""
    remote = config.status.remote
    if ask.public_key not in {remote.public_key, remote.next_key} - {""}:
        raise Refusal("OtherKey", "the other lender has another tunnel key here than the one that you named")
    seen = seen_here(ask.pod_cidrs, paired(remote.pod_cidrs, config.spec.remap.pod_cidrs))
    for one in seen:
        if overlapping := _overlapping(one, meant_by(networks)):
            raise Refusal("CIDROverlap", f"{one} is in use here for your own {overlapping}")
    return DirectGrant(home=ask.home, request=ask.request, pod_cidrs=list(ask.pod_cidrs))


def seen_here(asked: Sequence[str], pairs: Iterable[tuple[Network, Network]]) -> list[Network]:
    """Return networks that a home names, each inside one of the other lender's, as they are seen here; or Refusal."""
    named = parse_networks(asked)
    if not named or len(named) != len(asked) or len(named) > MAX_NETWORKS:
        raise Refusal("NotItsNetworks", "there are no networks of pods, or some of them are none")
    known, found = list(pairs), list[Network]()
    for index, one in enumerate(named):
        if other := _overlapping(one, named[index + 1 :]):
            raise Refusal("CIDROverlap", f"the networks {one} and {other} overlap")
        pair = next((pair for pair in known if _contains(pair[0], one)), None)
        if pair is None:
            raise Refusal("NotItsNetworks", f"the network {one} is none of the other lender's pods")
        first = shift(one.network_address, *pair)
        found += parse_networks([f"{first}/{one.prefixlen}"])
    return found


def meant_by(networks: NetworkConfig) -> list[Network]:
    """Return the networks whose addresses mean something of home's to its pods here (``fabric.state.direct``)."""
    status, remap = networks.status, networks.spec.remap
    return parse_networks([*status.ack.pod_cidrs, *remap.pod_cidrs, *status.remote.service_cidrs])


def _overlapping(one: Network, others: Iterable[Network]) -> Network | None:
    return next((other for other in others if _contains(one, other) or _contains(other, one)), None)


def _contains(wide: Network, one: Network) -> bool:
    return wide.version == one.version and wide.prefixlen <= one.prefixlen and one.network_address in wide
