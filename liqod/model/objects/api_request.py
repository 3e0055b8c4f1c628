"""What a request asks of a Kubernetes API server, in the words of its authorization."""

from __future__ import annotations

import attrs


@attrs.frozen
class Ask:
    """One request: the verb of RBAC, and what it is on (Kubernetes: "Authorization", request attributes).

    ``path`` is set instead of the rest for what is no resource (``/readyz``).
    """

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

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
