"""Finds what is wrong between the API server and the daemon: its account, its webhook, its nodes' API. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import urlsplit

import attrs

from liqod.model.diagnosis.problem import PROCESSES, Problem
from liqod.model.host_port import join_address

SHOWN: Final = 3
"""Rights that are named."""


@attrs.frozen(kw_only=True)
class AccountFacts:
    """The account of a process: what of it, its tokens and its rights is there, and what it may not.

    Without the account the process works with other credentials, or was never installed: nothing is said then. It was
    there where it still has a binding. ``works``: the process renews its lease, so that it can log in, in whatever way.
    ``liqodctl`` is how the command is called for the process.
    """

    name: str
    exists: bool
    has_token: bool
    is_bound: bool
    lacks: tuple[str, ...] = ()
    works: bool = False
    liqodctl: str = "liqodctl"


def of_account(account: AccountFacts) -> Iterator[Problem]:
    """Yield what is missing of an account."""
    renew = f"`{account.liqodctl} install --daemon-kubeconfig FILE`, FILE being the daemon's, as an administrator"
    if not account.exists:
        if account.is_bound and not account.works:
            text = "the ServiceAccount is gone, and its token with it: the daemon cannot log in"
            yield _of(account, "AccountMissing", text, renew)
        return
    if not account.has_token and not account.works:
        text = "the Secret of its tokens is gone: the daemon cannot log in, unless it has other credentials"
        yield _of(account, "TokenMissing", text, renew)
    if account.lacks:
        shown = ", ".join(account.lacks[:SHOWN]) + (" and more" if len(account.lacks) > SHOWN else "")
        text = f"the daemon's account may not: {shown}"
        yield _of(account, "RightsMissing", text, f"`{account.liqodctl} install` as an administrator")


def _of(account: AccountFacts, code: str, cause: str, advice: str) -> Problem:
    return Problem(
        code=code, kind="daemon", name=f"account {account.name}", cause=cause, advice=advice, topic=PROCESSES
    )


@attrs.frozen
class WebhookFacts:
    """The webhook that the leading daemon serves at ``where``, a URL or a Service.

    ``configured`` is whether the API server has its configuration, ``answered`` whether it reached the webhook when a
    pod was tried; None: that was not tried, or its outcome says nothing.
    """

    where: str
    configured: bool
    answered: bool | None = None


def of_webhook(webhook: WebhookFacts) -> Iterator[Problem]:
    """Yield what keeps the API server from asking the webhook."""
    effect = "new pods of offloaded namespaces lack what leads them to virtual nodes"
    if not webhook.configured:
        yield Problem(
            code="WebhookNotConfigured",
            kind="object",
            name="MutatingWebhookConfiguration liqod",
            cause=f"it is missing, or calls another place than {webhook.where}: {effect}",
            advice="the leading daemon writes it again within seconds; its log says why it cannot",
            topic=PROCESSES,
        )
    elif webhook.answered is False:
        yield Problem(
            code="WebhookUnreachable",
            kind="object",
            name="MutatingWebhookConfiguration liqod",
            cause=f"the API server gets no answer from {webhook.where}: {effect}",
            advice=f"let the API server reach {port_of(webhook.where)}: firewalls, `url` or `service` under [webhook]",
            topic=PROCESSES,
        )


def port_of(where: str) -> str:
    """Return what has to be open for the API server to reach a webhook."""
    if "://" not in where:
        return f"the Service {where} and its endpoints"
    parts = urlsplit(where)
    try:
        return f"TCP port {parts.port or 443} of {parts.hostname}"
    except ValueError:
        return where


@attrs.frozen
class NodeApiFacts:
    """Where the API of a virtual node is, and why the API server does not reach it (empty: it does)."""

    node: str
    address: str
    port: int
    trouble: str = ""


def of_node_apis(found: Iterable[NodeApiFacts]) -> Iterator[Problem]:
    """Yield the virtual nodes whose API cannot be reached."""
    for one in found:
        if one.trouble:
            where = join_address(one.address, one.port) if one.address else f"port {one.port}"
            yield Problem(
                code="NodeAPIUnreachable",
                kind="node",
                name=one.node,
                cause=f"the API server does not reach its API at {where}, so that logs, exec and port-forward of its "
                f"pods fail: {one.trouble}",
                severity="warning",
                advice=f"let the API server reach TCP port {one.port} of {one.address or 'the leading daemon'}",
                topic=PROCESSES,
            )
