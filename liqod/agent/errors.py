"""What keeps the daemon from working, in a form that fits a log line, the service's status and ``/readyz``."""

from __future__ import annotations

from collections.abc import Sequence

from liqod.agent.account.names import liqodctl_as
from liqod.flow.errors import ExpectedError
from liqod.kube.connection.config import ConfigError
from liqod.kube.errors import ApiError, Forbidden, KubeError, LaterRelease, ManagedElsewhere, Unauthorized, Unreachable


class StartupError(ExpectedError):
    """A reason in one word, and a sentence: what does not work, why, what to do next.

    ``details`` are further sentences, one for each thing that the first one sums up.
    """

    def __init__(self, reason: str, message: str, details: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.details = tuple(details)


def reason_of(error: Exception) -> str:
    """Return the reason in one word of a failure that keeps the daemon from its work."""
    match error:
        case StartupError(reason=reason):
            return reason
        case ConfigError():
            return "KubeconfigUnusable"
        case KubeError():
            return explain(error, "", "").reason
        case _:
            return "DaemonFailed"


def explain(error: KubeError, doing: str, server: str, role: str = "all") -> StartupError:
    """Return the trouble behind a failed request; ``doing`` completes the sentence "... while <doing>".

    ``role`` is that of this process, for the commands of ``liqodctl`` that are named.
    """
    liqodctl = liqodctl_as(role)
    match error:
        case Unreachable():
            return StartupError(
                "APIUnreachable",
                f"cannot reach the API server {server}: {error}; "
                "check the network and kubernetes.kubeconfig, it is tried again",
            )
        case Unauthorized():
            return StartupError(
                "CredentialsRefused",
                f"the API server {server} does not know the credentials ({error.message}); "
                f"`{liqodctl} install --daemon-kubeconfig FILE`, run by an administrator, writes one with new ones",
            )
        case Forbidden():
            return StartupError(
                "RightsMissing",
                f"{doing} is not allowed: {error.message}; `{liqodctl} check` lists all rights that are missing",
            )
        case LaterRelease():
            return StartupError("LaterRelease", str(error))
        case ManagedElsewhere():
            return StartupError("ManagedElsewhere", str(error))
        case ApiError():
            return StartupError("APIRefused", f"{doing} failed: {error.message} (HTTP {error.code}); it is tried again")
        case _:
            return StartupError("APIFailed", f"{doing} failed: {error}; it is tried again")
