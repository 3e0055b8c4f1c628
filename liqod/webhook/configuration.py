"""The MutatingWebhookConfiguration: the wanted one, and whether an existing one matches it (pure)."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import frozen

from liqod.model.host_port import split_address
from liqod.model.names import ENABLED_LABEL
from liqod.model.objects.meta import Object

NAME: Final = "liqod"
WEBHOOK_NAME: Final = "pods.webhook.liqo.io"
TIMEOUT: Final = 5
"""Seconds that the API server waits for an answer (timeoutSeconds, 1 to 30). A controller may create hundreds of pods
at once, of which a busy daemon answers the last after two seconds; a stopped daemon refuses the connection at once."""
_SELECTOR: Final = "namespaceSelector"


class Configuration(Object, frozen=True):
    """The configuration as the API server shows it."""

    webhooks: list[dict[str, Any]] = []


@frozen
class ServiceReference:
    """A Service, in whose name the API server calls a webhook in its own cluster."""

    namespace: str
    name: str
    port: int = 443

    @property
    def host(self) -> str:
        """The name that the API server wants in the certificate."""
        return f"{self.name}.{self.namespace}.svc"


def service_of(text: str) -> ServiceReference | None:
    """Return what the setting ``webhook.service`` names, ``namespace/name[:port]``; None for an empty one."""
    namespace, _, rest = text.partition("/")
    return ServiceReference(namespace, *split_address(rest, 443)) if text else None


def forge(
    url: str, ca_pem: bytes, service: ServiceReference | None = None, found: Configuration | None = None
) -> dict[str, Any]:
    """Return the configuration: creations of pods in enabled namespaces, by the URL or a Service with its path.

    ``failurePolicy`` Ignore: a daemon that is down must not keep pods from being created. ``reinvocationPolicy``
    IfNeeded: a webhook that is called after this one may add what changes the answer. What others added to the
    selector of ``found`` stays: providers keep all webhooks from the namespaces that they manage.
    """
    client: dict[str, Any] = {"caBundle": base64.b64encode(ca_pem).decode("ascii")}
    if service is None:
        client["url"] = url
    else:
        client["service"] = {
            "namespace": service.namespace,
            "name": service.name,
            "port": service.port,
            "path": urlsplit(url).path,
        }
    webhook = {
        "name": WEBHOOK_NAME,
        "clientConfig": client,
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
                "scope": "Namespaced",
            }
        ],
        _SELECTOR: _selector(found),
        "failurePolicy": "Ignore",
        # Pods that are created through another API version, should there be one, are converted to v1.
        "matchPolicy": "Equivalent",
        # Without side effects the API server also calls the webhook for dry runs.
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT,
        "reinvocationPolicy": "IfNeeded",
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [webhook],
    }


def _selector(found: Configuration | None) -> dict[str, Any]:
    """Return the selector of enabled namespaces with the requirements of others, by key."""
    present: Any = found.webhooks[0].get(_SELECTOR) if found is not None and len(found.webhooks) == 1 else None
    present = present if isinstance(present, Mapping) else {}
    selector: dict[str, Any] = {"matchLabels": {**(present.get("matchLabels") or {}), ENABLED_LABEL: "true"}}
    others = [one for one in present.get("matchExpressions") or () if one.get("key") != ENABLED_LABEL]
    # The whole selector has one owner in Server-Side Apply: what is left out is removed.
    return {**selector, "matchExpressions": others} if others else selector


def matches(found: Configuration | None, wanted: Mapping[str, Any]) -> bool:
    """Return whether a configuration has the wanted fields; those that the API server defaults are not compared."""
    if found is None or len(found.webhooks) != 1:
        return False
    return all(found.webhooks[0].get(key) == value for key, value in wanted["webhooks"][0].items())
