"""NetworkPolicies on their way between two sandboxes, by the real virtual kubelet and the real hosting."""

from __future__ import annotations

from tests.kubelet.reflection import sandboxes
from tests.kubelet.reflection.isolation import cases


class PoliciesBetweenSandboxesTests(sandboxes.Sandboxes, cases.PolicyCase):
    """The cases."""
