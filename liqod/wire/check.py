"""Validates the fields of each event beyond their types: one function per event, the same for both directions.

What passes here is well-formed: names are DNS labels, numbers are finite and bounded, texts for people are one line of
printable characters. Whether the peer is allowed what it asks for is decided elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from liqod.model.ids import is_dns_label
from liqod.model.objects.quantity import parse
from liqod.model.records.offer_rules import is_qualified_name
from liqod.model.text import clean_text
from liqod.wire import events
from liqod.wire.events import Event

# Counters are written to records, whose integers are int64 (OpenAPI, format int64).
MAX_COUNTER: Final = 2**63 - 1
MAX_MINOR: Final = 2**16 - 1
MAX_FEATURES: Final = 64
MAX_TEXT: Final = 1024
MAX_SECONDS: Final = 365 * 86400
MAX_RETRY_AFTER: Final = 86400
MAX_URL: Final = 2048
MAX_TOKEN: Final = 16 * 1024
MAX_NETWORKS: Final = 16
MAX_ENDPOINTS: Final = 8
MAX_SLICE_RESOURCES: Final = 16
MAX_QUANTITY: Final = 64
MAX_STREAMS: Final = 64
MAX_RECORDS: Final = 64
MAX_TTL: Final = 86400

_NAME = re.compile(r"(?=.{1,63}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_FEATURE = re.compile(r"[a-z0-9][-a-z0-9]{0,31}")
_REASON = re.compile(r"[A-Z][A-Za-z0-9]{0,63}")
_URL = re.compile(r"https?://[!-~]+")
# 32 bytes in base64: a WireGuard key (wg(8)); below, the 64 bytes of an Ed25519 signature (RFC 8032).
_KEY = re.compile(r"([A-Za-z0-9+/]{43}=)?")
_SIGNATURE = re.compile(r"([A-Za-z0-9+/]{86}==)?")
# 39 characters are the longest text of an IPv6 address.
_CIDR = re.compile(r"[0-9a-fA-F:.]{2,39}/[0-9]{1,3}")
_SOCKET = re.compile(r"\[?[0-9a-fA-F:.]{2,39}\]?:[0-9]{1,5}")
_HEX = re.compile(r"[0-9a-f]{1,64}")
_TOKEN = re.compile(r"[!-~]+")
# A label of a Service's name may begin with "_", as those of SRV records do (RFC 2782).
_LABEL = r"[a-z0-9_](?:[-a-z0-9_]{0,61}[a-z0-9_])?"
_DNS_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")
_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_PORT = r"(?:0|[1-9][0-9]{0,4})"
# By the type's number: A, CNAME, PTR, AAAA, SRV. What an address means is judged by who uses it.
_RECORD_DATA: Final[Mapping[int, re.Pattern[str]]] = MappingProxyType(
    {
        1: re.compile(rf"{_BYTE}(?:\.{_BYTE}){{3}}"),
        5: _DNS_NAME,
        12: _DNS_NAME,
        28: re.compile(r"[0-9a-f:]{2,39}"),
        33: re.compile(rf"{_PORT} {_PORT} {_PORT} (?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*"),
    }
)


class BadField(ValueError):
    """The value of a field is not allowed."""


def check(event: Event) -> None:
    """Raise BadField when a field of an event is invalid or out of bounds."""
    _CHECKS[type(event)](event)


def plain(text: str) -> str:
    """Return a text that may be sent: one line of at most 1024 printable characters."""
    return clean_text(text, MAX_TEXT)


def _counter(name: str, value: int, maximum: int = MAX_COUNTER, minimum: int = 0) -> None:
    if not minimum <= value <= maximum:
        raise BadField(f"{name} is {value}; from {minimum} to {maximum} are allowed")


def _match(name: str, value: str, pattern: re.Pattern[str], wanted: str) -> None:
    if pattern.fullmatch(value) is None:
        raise BadField(f"{name} is not {wanted}")


def _label(name: str, value: str) -> None:
    if not is_dns_label(value):
        raise BadField(f"{name} is not a DNS-1123 label of at most 63 characters")


def _text(name: str, value: str) -> None:
    if len(value) > MAX_TEXT or not value.isprintable():
        raise BadField(f"{name} is not one line of at most {MAX_TEXT} printable characters")


def _reason(value: str, *, optional: bool) -> None:
    if value or not optional:
        _match("reason", value, _REASON, "a CamelCase word")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise BadField(f"{name} is none of {', '.join(allowed)}")


def _features(values: list[str]) -> None:
    if len(values) > MAX_FEATURES:
        raise BadField(f"there are {len(values)} features; {MAX_FEATURES} are allowed")
    for value in values:
        _match("a feature", value, _FEATURE, "a lower-case word of at most 32 characters")


def _hello(event: events.Hello) -> None:
    _label("cluster_id", event.cluster_id)
    _match("cluster_name", event.cluster_name, _NAME, "a DNS-1123 name of at most 63 characters")
    _counter("epoch", event.epoch)
    _counter("min_minor", event.min_minor, MAX_MINOR)
    _counter("max_minor", event.max_minor, MAX_MINOR, event.min_minor)
    _features(event.features)


def _welcome(event: events.Welcome) -> None:
    _counter("minor", event.minor, MAX_MINOR)
    _features(event.features)


def _bye(event: events.Bye) -> None:
    _reason(event.reason, optional=False)
    _text("message", event.message)
    if not 0 <= event.retry_after <= MAX_RETRY_AFTER:  # false for NaN and the infinities as well
        raise BadField(f"retry_after is not from 0 to {MAX_RETRY_AFTER}")


def _payload(event: events.Ping | events.Pong) -> None:
    _counter("payload", event.payload)


def _unsupported(event: events.Unsupported) -> None:
    _counter("unknown", event.unknown, MAX_MINOR)


def _advertise(event: events.Advertise) -> None:
    _counter("epoch", event.epoch)
    _counter("seq", event.seq)
    _counter("ttl", event.ttl, MAX_SECONDS)


def _verdict(event: events.Verdict) -> None:
    _counter("epoch", event.epoch)
    _counter("seq", event.seq)
    _one_of("decision", event.decision, ("Accepted", "Refused", "Pending"))
    _reason(event.reason, optional=True)
    _text("message", event.message)


def _withdraw(event: events.Withdraw) -> None:
    _counter("epoch", event.epoch)
    _one_of("role", event.role, ("lender", "borrower"))
    _reason(event.reason, optional=True)


def _withdrawn(event: events.Withdrawn) -> None:
    _counter("epoch", event.epoch)
    _one_of("role", event.role, ("lender", "borrower"))


def _credential(event: events.Credential) -> None:
    if len(event.api_url) > MAX_URL:
        raise BadField(f"api_url has more than {MAX_URL} characters")
    if not event.ca.isascii():
        raise BadField("ca is not PEM text")
    if len(event.token) > MAX_TOKEN:
        raise BadField(f"token has more than {MAX_TOKEN} characters")
    if event.api_url or event.token or not event.relay:
        _match("api_url", event.api_url, _URL, "an http or https URL")
        _match("token", event.token, _TOKEN, "printable ASCII without spaces")
    _counter("lifetime", event.lifetime, MAX_SECONDS)
    _label("namespace", event.namespace)


def _map_namespace(event: events.MapNamespace) -> None:
    _counter("request", event.request)
    _label("local", event.local)
    _label("remote", event.remote)


def _namespace_mapped(event: events.NamespaceMapped) -> None:
    _counter("request", event.request)
    _label("remote", event.remote)
    _reason(event.reason, optional=True)
    _text("message", event.message)


def _release_namespace(event: events.ReleaseNamespace) -> None:
    _counter("request", event.request)
    _label("remote", event.remote)


def _networks(pods: list[str], *external: str) -> None:
    if len(pods) > MAX_NETWORKS:
        raise BadField(f"there are {len(pods)} networks; {MAX_NETWORKS} are allowed")
    for text in (*pods, *filter(None, external)):
        _match("a network", text, _CIDR, "written like 10.1.0.0/16")


def _network(event: events.Network) -> None:
    _networks(event.pod_cidrs, event.external_cidr, event.external_six)
    _networks(event.service_cidrs)
    if len(event.endpoints) > MAX_ENDPOINTS:
        raise BadField(f"there are {len(event.endpoints)} endpoints; {MAX_ENDPOINTS} are allowed")
    for text in event.endpoints:
        _match("an endpoint", text, _SOCKET, "written like 192.0.2.1:5871")
    _match("public_key", event.public_key, _KEY, "32 bytes in base64")
    _counter("mtu", event.mtu, MAX_MINOR)
    if event.next_key:
        _match("next_key", event.next_key, _KEY, "32 bytes in base64")


def _network_ack(event: events.NetworkAck) -> None:
    _networks(event.pod_cidrs, event.external_cidr, event.external_six)
    _networks(event.service_cidrs)
    _reason(event.reason, optional=True)
    _text("message", event.message)
    if event.known_key:
        _match("known_key", event.known_key, _KEY, "32 bytes in base64")


def _join(event: events.Join) -> None:
    _match("token", event.token, _HEX, "hex digits")
    if len(event.proof) != 64:
        raise BadField("proof has not 64 digits")
    _match("proof", event.proof, _HEX, "hex digits")


def _new_key(event: events.NewKey) -> None:
    _match("public_key", event.public_key, _KEY, "32 bytes in base64")
    _match("proof", event.proof, _SIGNATURE, "64 bytes in base64")
    if bool(event.public_key) != bool(event.proof):
        raise BadField("public_key and proof go together")


def _key_noted(event: events.KeyNoted) -> None:
    _match("public_key", event.public_key, _KEY, "32 bytes in base64")
    _reason(event.reason, optional=True)
    _text("message", event.message)


def _resources(values: dict[str, str]) -> None:
    """Names and quantities of resources, none of them negative."""
    if len(values) > MAX_SLICE_RESOURCES:
        raise BadField(f"there are {len(values)} resources; {MAX_SLICE_RESOURCES} are allowed")
    for name, text in values.items():
        if not is_qualified_name(name):
            raise BadField("a resource is not named by a qualified name")
        if len(text) > MAX_QUANTITY:
            raise BadField(f"a quantity has more than {MAX_QUANTITY} characters")
        try:
            value = parse(text)
        except ValueError as error:
            raise BadField("a resource is not a quantity") from error
        if value < 0:
            raise BadField("a quantity is negative")


def _ask_slice(event: events.AskSlice) -> None:
    _label("name", event.name)
    _label("slice_class", event.slice_class)
    _counter("revision", event.revision)
    _resources(event.resources)
    if not event.resources:
        raise BadField("there are no resources")


def _slice_decided(event: events.SliceDecided) -> None:
    _label("name", event.name)
    _counter("revision", event.revision)
    _one_of("decision", event.decision, ("Granted", "Reduced", "Refused", "Removed"))
    _resources(event.resources)
    has_some = bool(event.resources)
    if has_some == (event.decision == "Removed") and event.decision != "Refused":
        raise BadField("Granted and Reduced have resources, Removed has none")
    _reason(event.reason, optional=True)
    _text("message", event.message)


def _remove_slice(event: events.RemoveSlice) -> None:
    _label("name", event.name)
    _counter("revision", event.revision)


def _tunnel_end(event: events.DirectOffer | events.DirectAsk, *, optional: bool) -> None:
    """One end of a direct connection: all that it takes to reach it, or nothing where that is allowed."""
    _label("home", event.home)
    _networks(event.pod_cidrs)
    if len(event.endpoints) > MAX_ENDPOINTS:
        raise BadField(f"there are {len(event.endpoints)} endpoints; {MAX_ENDPOINTS} are allowed")
    for text in event.endpoints:
        _match("an endpoint", text, _SOCKET, "written like 192.0.2.1:5871")
    _match("public_key", event.public_key, _KEY, "32 bytes in base64")
    _counter("mtu", event.mtu, MAX_MINOR)
    if bool(event.endpoints) != bool(event.public_key) or (not optional and not event.endpoints):
        raise BadField("endpoints and public_key go together")


def _direct_offer(event: events.DirectOffer) -> None:
    _tunnel_end(event, optional=True)


def _direct_ask(event: events.DirectAsk) -> None:
    _tunnel_end(event, optional=False)
    _label("peer", event.peer)
    _counter("request", event.request)


def _direct_agree(event: events.DirectAgree) -> None:
    _label("home", event.home)
    _label("peer", event.peer)
    _counter("request", event.request)
    _reason(event.reason, optional=True)
    _text("message", event.message)


def _direct_end(event: events.DirectEnd) -> None:
    _label("home", event.home)
    _label("peer", event.peer)
    _reason(event.reason, optional=True)
    _text("message", event.message)


def _keep_streams(event: events.KeepStreams) -> None:
    _counter("count", event.count, MAX_STREAMS)


def _streams_kept(event: events.StreamsKept) -> None:
    _counter("count", event.count, MAX_STREAMS)
    _reason(event.reason, optional=True)
    _text("message", event.message)


def _name_query(event: events.NameQuery) -> None:
    _counter("request", event.request)
    _match("name", event.name, _DNS_NAME, "a name of DNS in lower case")
    _counter("kind", event.kind, MAX_MINOR, 1)


def _name_record(record: events.NameRecord) -> None:
    _match("a record's name", record.name, _DNS_NAME, "a name of DNS in lower case")
    _counter("ttl", record.ttl, MAX_TTL)
    shape = _RECORD_DATA.get(record.kind)
    if shape is None:
        raise BadField(f"records of type {record.kind} are not answered; {', '.join(map(str, _RECORD_DATA))} are")
    _match("a record's data", record.data, shape, f"the text of a record of type {record.kind}")


def _name_answer(event: events.NameAnswer) -> None:
    _counter("request", event.request)
    _one_of("result", event.result, ("Records", "None", "Refused"))
    if len(event.records) > MAX_RECORDS:
        raise BadField(f"there are {len(event.records)} records; {MAX_RECORDS} are allowed")
    for record in event.records:
        _name_record(record)
    if bool(event.records) != (event.result == "Records"):
        raise BadField("records go with Records")
    _counter("ttl", event.ttl, MAX_TTL)
    _reason(event.reason, optional=True)
    _text("message", event.message)


_CHECKS: Final[Mapping[type[Event], Callable[[Any], None]]] = MappingProxyType(
    {
        events.Hello: _hello,
        events.Welcome: _welcome,
        events.Bye: _bye,
        events.Ping: _payload,
        events.Pong: _payload,
        events.Unsupported: _unsupported,
        events.Advertise: _advertise,
        events.Verdict: _verdict,
        events.Withdraw: _withdraw,
        events.Withdrawn: _withdrawn,
        events.Credential: _credential,
        events.MapNamespace: _map_namespace,
        events.NamespaceMapped: _namespace_mapped,
        events.ReleaseNamespace: _release_namespace,
        events.Network: _network,
        events.NetworkAck: _network_ack,
        events.Join: _join,
        events.NewKey: _new_key,
        events.KeyNoted: _key_noted,
        events.AskSlice: _ask_slice,
        events.SliceDecided: _slice_decided,
        events.RemoveSlice: _remove_slice,
        events.DirectOffer: _direct_offer,
        events.DirectAsk: _direct_ask,
        events.DirectAgree: _direct_agree,
        events.DirectEnd: _direct_end,
        events.KeepStreams: _keep_streams,
        events.StreamsKept: _streams_kept,
        events.NameQuery: _name_query,
        events.NameAnswer: _name_answer,
    }
)
