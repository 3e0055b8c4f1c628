"""What goes wrong on the command line: a stable code, a sentence, and the next thing to do."""

from __future__ import annotations

from typing import Final

from liqod.kube.errors import ApiError, Forbidden, KubeError, NotFound, Unauthorized, Unreachable

FAILED: Final = 1
USAGE: Final = 2

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
NOBODY_THERE: Final = "LQ2009"
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
TRIAL: Final = "LQ6003"
DEFECT: Final = "LQ9001"


class CliError(Exception):
    """A failure to be shown; ``hint`` says what to do next, ``status`` is the exit status."""

    def __init__(self, code: str, message: str, hint: str = "", status: int = FAILED) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.status = status


def of_kube(error: KubeError, server: str) -> CliError:
    """Return what to show for a failed request to the API server."""
    match error:
        case Unreachable():
            return CliError(
                UNREACHABLE,
                f"cannot reach the API server {server}: {error}",
                "check the network, or name another cluster with --kubeconfig or --context",
            )
        case Unauthorized():
            return CliError(
                CREDENTIALS,
                f"the API server {server} does not know these credentials: {error.message}",
                "log in again, or name another user with --kubeconfig or --context",
            )
        case Forbidden():
            return CliError(
                RIGHTS, error.message, "name the kubeconfig of a user who may, with --kubeconfig or $KUBECONFIG"
            )
        case NotFound():
            return CliError(
                NOT_INSTALLED,
                f"the cluster does not know that: {error.message}",
                "run `liqodctl install`, then start the daemon",
            )
        case ApiError():
            return CliError(REFUSED, f"the API server refused: {error.message}", "run `liqodctl check`")
        case _:
            return CliError(REFUSED, str(error), "run `liqodctl check`")
