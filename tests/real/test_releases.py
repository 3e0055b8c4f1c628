"""Other releases of Kubernetes than the usual one: the oldest that is supported, alone and with the usual one.

``LIQOD_RELEASES`` names others instead, those of home and lender: ``1.32``, or ``1.34,1.36.1``.
"""

from __future__ import annotations

import os
from typing import Final

from tests.real import releases as walk
from tests.testbed.versions import KUBERNETES

OLDEST: Final = "1.30"
NAMED: Final = tuple(filter(None, os.environ.get("LIQOD_RELEASES", "").split(",")))

if NAMED:

    class NamedReleaseTests(walk.ReleaseCase):
        """Those that were named."""

        releases = NAMED

else:

    class OldestTests(walk.ReleaseCase):
        """The oldest release at both sides."""

        releases = (OLDEST,)

    class OldestAtHomeTests(walk.ReleaseCase):
        """Home has the oldest release, the lender the usual one."""

        releases = (OLDEST, KUBERNETES)

    class OldestAtLenderTests(walk.ReleaseCase):
        """Home has the usual release, the lender the oldest one."""

        releases = (KUBERNETES, OLDEST)

    class UsualTests(walk.ReleaseCase):
        """The usual release at both sides: what differs from it is the release, and not the walk."""

        releases = (KUBERNETES,)
