"""The MutatingWebhookConfiguration: the wanted one, and whether an existing one matches it (pure)."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from liqod.model.names import ENABLED_LABEL
from liqod.model.objects.meta import Object

NAME: Final = "liqod"
WEBHOOK_NAME: Final = "pods.webhook.liqo.io"
TIMEOUT: Final = 5
"""Seconds that the API server waits for an answer (timeoutSeconds, 1 to 30). A controller may create hundreds of pods
at once, of which a busy daemon answers the last after two seconds; a stopped daemon refuses the connection at once."""


class Configuration(Object, frozen=True):
    """The configuration as the API server shows it."""

    webhooks: list[dict[str, Any]] = []


def forge(url: str, ca_pem: bytes) -> dict[str, Any]:
    """Return the configuration: creations of pods in enabled namespaces.

    ``failurePolicy`` Ignore: a daemon that is down must not keep pods from being created. ``reinvocationPolicy``
    IfNeeded: a webhook that is called after this one may add what changes the answer.
    """
    webhook = {
        "name": WEBHOOK_NAME,
        "clientConfig": {"url": url, "caBundle": base64.b64encode(ca_pem).decode("ascii")},
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
                "scope": "Namespaced",
            }
        ],
        "namespaceSelector": {"matchLabels": {ENABLED_LABEL: "true"}},
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


def matches(found: Configuration | None, wanted: Mapping[str, Any]) -> bool:
    """Return whether a configuration has the wanted fields; those that the API server defaults are not compared."""
    if found is None or len(found.webhooks) != 1:
        return False
    return all(found.webhooks[0].get(key) == value for key, value in wanted["webhooks"][0].items())
