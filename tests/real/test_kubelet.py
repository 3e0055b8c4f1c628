"""Virtual kubelets between two real API servers, with the controllers and the admission of Kubernetes."""

from __future__ import annotations

from tests.kubelet import cases, patch_cases
from tests.real.sides import Pair


class KubeletsOnRealClustersTests(Pair, patch_cases.PatchCase, cases.KubeletCase):
    """The cases of virtual kubelets, each with cluster IDs and namespaces of its own."""

    # On a busy machine the changes that one patch is to tell are further apart.
    status_delay = 1.0
    most_patches = 3
