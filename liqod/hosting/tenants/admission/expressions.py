"""Expressions of CEL that the rules about several kinds have in common. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from liqod.config.schema import OF_TENANT
from liqod.hosting.tenants.admission.metadata_rules import cel_list
from liqod.model.names import REMOTE_CLUSTER_LABEL


def only_fields(kind: str, path: str, known: Sequence[str]) -> tuple[str, str]:
    """Return the rule that an object has no field that is not known: what it does there nobody has judged."""
    message = f"a borrower's {kind} has a field in its spec that this release of liqod does not know"
    return only(path, known), message


def only(path: str, known: Sequence[str]) -> str:
    """Return the expression that a part of an object has fields of a list only."""
    # With ``dyn`` the API server's check of types, whose result is a warning, lets an object be gone through.
    return f"dyn({path}).all(f, f in {cel_list(known)})"


def host_is_granted(hosts: Iterable[str]) -> str:
    """Return the expression that the host ``h`` is a granted one, or a name under it."""
    return f"[{', '.join(map(_host, hosts))}].exists(s, h == s || h.endsWith('.' + s))"


def _host(granted: str) -> str:
    """Return the CEL expression of a granted host; the tenant is that of the namespace's label, which it cannot set."""
    suffix = granted.removeprefix(OF_TENANT)
    if suffix == granted:
        return json.dumps(granted)
    return f"namespaceObject.metadata.labels['{REMOTE_CLUSTER_LABEL}'] + {json.dumps(f'.{suffix}')}"
