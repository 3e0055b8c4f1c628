"""The authorization attributes of a Kubernetes API request."""

from __future__ import annotations

import attrs


@attrs.frozen
class RequestAttributes:
    """One request: the RBAC verb and its resource (Kubernetes: "Authorization", request attributes).

    ``path`` is set instead of the resource for a non-resource request (``/readyz``).
    """

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = attrs.field(default="", kw_only=True)
    path: str = attrs.field(default="", kw_only=True)

    @property
    def what(self) -> str:
        """The resource as roles name it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def __str__(self) -> str:
        if self.path:
            return f"{self.verb} {self.path}"
        kind = f"{self.what}.{self.group}" if self.group else self.what
        named = f" {self.name}" if self.name else ""
        return f"{self.verb} {kind}{named} in " + (
            f"the namespace {self.namespace}" if self.namespace else "no namespace"
        )
