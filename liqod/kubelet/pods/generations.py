"""Translates ``observedGeneration`` of a remote pod to that of its home pod. Pure.

A pod's generation grows with each change of its spec, and a kubelet reports up to which it looked at the spec. The two
pods count apart, so numbers of the lender's mean nothing at home: the remote pod carries the digest of the home spec
that it was brought to (``HOME_SPEC_ANNOTATION``), and what its kubelet observed is compared with its own generation.

Source: Kubernetes, KEP-5067 (Pod Generation); kubelet, pkg/kubelet/status/status_manager.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

FIELD: Final = "observedGeneration"


@frozen
class Generations:
    """The generation of the home pod whose spec the remote pod has, and the remote pod's own one.

    ``home`` is 0 while the remote pod does not have the newest spec, and where the home cluster counts no generations.
    """

    home: int = 0
    remote: int = 0

    def of_status(self, before: Mapping[str, Any], remote: Mapping[str, Any]) -> dict[str, int]:
        """Return the field for the home pod's status, empty without one.

        Where the lender counts none (before Kubernetes 1.33), its kubelet is taken to have looked at the whole spec.
        """
        return self._field(before, remote.get(FIELD, 0))

    def of_condition(self, before: Mapping[str, Any] | None, remote: Mapping[str, Any]) -> dict[str, int]:
        """Return the field for a condition of the home pod, which has ``before`` of that type; empty without one.

        A resize keeps the generation that it began with in its conditions.
        """
        return self._field(before or {}, remote.get(FIELD))

    def _field(self, before: Mapping[str, Any], observed: object) -> dict[str, int]:
        if self.home and isinstance(observed, int) and observed >= self.remote:
            return {FIELD: self.home}
        # The API server keeps a generation that a write leaves out: without the old one each write would differ.
        return {FIELD: before[FIELD]} if before.get(FIELD) else {}


UNKNOWN: Final = Generations()
