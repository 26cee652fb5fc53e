"""Exit statuses of the commands that read or change a cluster."""

from penstock.errors import Forbidden, Transient

# The request is refused, its object does not exist, or a file cannot be read or written.
FAILED = 1
# The API server or the operator does not answer, so the command may succeed later.
UNANSWERED = 2


def exit_status(error: Exception) -> int:
    """The exit status of a command that ends with this error."""
    is_unanswered = isinstance(error, Transient) and not isinstance(error, Forbidden)
    return UNANSWERED if is_unanswered else FAILED
