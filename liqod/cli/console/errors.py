"""Errors of the command line: a stable code, a message, and a hint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from liqod.kube.errors import KubeError

FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130
"""128 + SIGINT, as shells report it."""
BROKEN_PIPE: Final = 141
"""128 + SIGPIPE."""

CONFIGURATION: Final = "LQ1001"
KUBECONFIG: Final = "LQ1002"
UNREACHABLE: Final = "LQ1003"
CREDENTIALS: Final = "LQ1004"
RIGHTS: Final = "LQ1005"
NOT_INSTALLED: Final = "LQ1006"
REFUSED: Final = "LQ1007"
FILE: Final = "LQ1008"
NO_SUCH_PEER: Final = "LQ2001"
AMBIGUOUS: Final = "LQ2002"
NO_KEY: Final = "LQ2003"
OTHER_KEY: Final = "LQ2004"
NO_OFFER: Final = "LQ2005"
NOT_CONFIRMED: Final = "LQ2006"
BAD_TOKEN: Final = "LQ2007"  # noqa: S105 -- a code, nothing secret
NO_IDENTITY: Final = "LQ2008"
PEER_UNREACHABLE: Final = "LQ2009"
NOT_JOINED: Final = "LQ2010"
NO_SUCH_NODE: Final = "LQ2011"
NO_SUCH_NAMESPACE: Final = "LQ2101"
NO_SUCH_POD: Final = "LQ2102"
TIMED_OUT: Final = "LQ3001"
NOT_RUNNING: Final = "LQ3002"
LEFT_BEHIND: Final = "LQ3003"
IN_USE: Final = "LQ4001"
DEMO: Final = "LQ5001"
CHECK: Final = "LQ6001"
HOST: Final = "LQ6002"
TEST_FAILED: Final = "LQ6003"
DEFECT: Final = "LQ9001"


class CliError(Exception):
    """An error to show; ``hint`` is the next step for the user, ``status`` the exit status."""

    def __init__(self, code: str, message: str, hint: str = "", status: int = FAILED) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.status = status


def from_kube(error: KubeError, server: str) -> CliError:
    """Return the CliError for a failed request to the API server."""
    # Imported here, so that completion and ``version`` need not wait for it.
    from liqod.kube.errors import ApiError, Forbidden, NotFound, Unauthorized, Unreachable

    match error:
        case Unreachable():
            return CliError(
                UNREACHABLE,
                f"cannot reach the API server {server}: {error}",
                "check the network, or select another cluster with --kubeconfig or --context",
            )
        case Unauthorized():
            return CliError(
                CREDENTIALS,
                f"the API server {server} rejects these credentials: {error.message}",
                "log in again, or select another user with --kubeconfig or --context",
            )
        case Forbidden():
            return CliError(
                RIGHTS, error.message, "use the kubeconfig of a user with this right: --kubeconfig or $KUBECONFIG"
            )
        case NotFound():
            return CliError(
                NOT_INSTALLED,
                f"the resource does not exist in the cluster: {error.message}",
                "run `liqodctl install`, then start the daemon",
            )
        case ApiError():
            return CliError(REFUSED, f"the API server refused: {error.message}", "run `liqodctl check`")
        case _:
            return CliError(REFUSED, str(error), "run `liqodctl check`")
