"""All targets by name, and what the corpus of each begins with."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tests.fuzz.cost import Target
from tests.fuzz.targets import compiled, config, fabric, hosting, http, identity, kubernetes, names, wire

TARGETS: Final[Mapping[str, Target]] = MappingProxyType(
    {
        **wire.TARGETS,
        **identity.TARGETS,
        **http.TARGETS,
        **kubernetes.TARGETS,
        **hosting.TARGETS,
        **fabric.TARGETS,
        **compiled.TARGETS,
        **names.TARGETS,
        **config.TARGETS,
    }
)


def seeds() -> Mapping[str, list[bytes]]:
    """Return the contents that a corpus begins with, by target."""
    of_api = {**http.SEEDS, **kubernetes.SEEDS, **hosting.SEEDS}
    written = {**of_api, **fabric.SEEDS, **compiled.SEEDS, **names.SEEDS, **config.SEEDS}
    return {**wire.seeds(), **identity.seeds(), **written}
