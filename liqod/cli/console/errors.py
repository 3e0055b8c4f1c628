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
NOTHING_HELD: Final = "LQ2012"
NO_SUCH_NAMESPACE: Final = "LQ2101"
NO_SUCH_POD: Final = "LQ2102"
NO_SUCH_OBJECT: Final = "LQ2103"
TIMED_OUT: Final = "LQ3001"
NOT_RUNNING: Final = "LQ3002"
LEFT_BEHIND: Final = "LQ3003"
IN_USE: Final = "LQ4001"
DEMO: Final = "LQ5001"
CHECK: Final = "LQ6001"
HOST: Final = "LQ6002"
TEST_FAILED: Final = "LQ6003"
DEFECT: Final = "LQ9001"

MEANINGS: Final = {
    CONFIGURATION: ("the configuration or an option cannot be used", "correct what the message names"),
    KUBECONFIG: ("there is no usable kubeconfig", "--kubeconfig, --context or $KUBECONFIG"),
    UNREACHABLE: ("the API server of this cluster does not answer", "the network, or another --context"),
    CREDENTIALS: ("the API server rejects the credentials", "log in again"),
    RIGHTS: ("the user may not do that", "the kubeconfig of a user with this right"),
    NOT_INSTALLED: ("liqod is not installed in this cluster", "liqodctl install"),
    REFUSED: ("the request is refused", "what the message names"),
    FILE: ("a file cannot be written", "another file, or room on its disk"),
    NO_SUCH_PEER: ("no peer has that name or ID", "liqodctl discover"),
    AMBIGUOUS: ("several peers have that name", "the cluster ID"),
    NO_KEY: ("no key of the peer has been seen", "wait for a session, or --fingerprint"),
    OTHER_KEY: ("the peer has another key than expected", "compare the words again; do not trust it before"),
    NO_OFFER: ("the peer has made no offer", "liqodctl status"),
    NOT_CONFIRMED: ("the question was not answered with yes", "--yes"),
    BAD_TOKEN: ("the pairing token cannot be used", "another one: liqodctl token create"),
    NO_IDENTITY: ("this cluster has no key yet", "start the daemon"),
    PEER_UNREACHABLE: ("no liqod answers at the address", "the address, and its firewall"),
    NOT_JOINED: ("the other side refused the token", "another token"),
    NO_SUCH_NODE: ("there is no such virtual node", "liqodctl status"),
    NOTHING_HELD: ("no deletions wait for a confirmation", "liqodctl status"),
    NO_SUCH_NAMESPACE: ("there is no such namespace", "kubectl create namespace"),
    NO_SUCH_POD: ("there is no such pod", "kubectl get pods -A"),
    NO_SUCH_OBJECT: ("there is no such object or code", "its name, and --namespace"),
    TIMED_OUT: ("it did not happen in time", "liqodctl status; --timeout waits longer"),
    NOT_RUNNING: ("no daemon runs for this cluster", "systemctl start liqod"),
    LEFT_BEHIND: ("objects of a peering are still there", "the daemon's log"),
    IN_USE: ("it is still in use", "what the message names"),
    DEMO: ("the demonstration failed", "its log"),
    CHECK: ("a check failed", "the hints beside the findings"),
    HOST: ("the network of this host cannot be read or changed", "as root, on the gateway's host"),
    TEST_FAILED: ("pods did not reach each other", "liqodctl netcheck PEER"),
    DEFECT: ("a defect of liqod", "report it, with LIQODCTL_TRACEBACK=1"),
}
"""What each code means, and what to do."""


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
    from liqod.kube.errors import ApiError, Forbidden, LaterRelease, NotFound, Unauthorized, Unreachable

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
        case NotFound() if error.details.get("name"):
            # Of a kind that is not served the Status names neither kind nor name (apimachinery).
            return CliError(
                NO_SUCH_OBJECT,
                f"an object of this command is gone: {error.message}",
                "it may have been deleted meanwhile; run the command again",
            )
        case NotFound():
            return CliError(
                NOT_INSTALLED,
                f"the resource does not exist in the cluster: {error.message}",
                "run `liqodctl install`, then start the daemon",
            )
        case LaterRelease():
            return CliError(IN_USE, str(error), "nothing was written; docs/guides/upgrade.md has the ways back")
        case ApiError():
            return CliError(REFUSED, f"the API server refused: {error.message}", "run `liqodctl check`")
        case _:
            return CliError(REFUSED, str(error), "run `liqodctl check`")
