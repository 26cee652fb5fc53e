"""Errors of requests to the Kubernetes API server, and of files that users give.

KubeError(Exception)
  Rejected      the request is wrong and stays wrong until its content changes
  NotFound      the object does not exist
  Conflict      the object has changed since it was read, or a quota changed at the same time
    AlreadyExists   an object of that name exists
  Transient     try again later; after `delay_s`, if the server says so
    Forbidden   denied by RBAC, a quota or pod security; allowed only after one of them changes
"""


class KubeError(Exception):
    """A request to the API server failed."""


class Rejected(KubeError):
    """The request is wrong and stays wrong until its content changes."""


class NotFound(KubeError):
    """The object does not exist."""


class Conflict(KubeError):
    """The object, or a quota that counts it, changed at the same time."""


class AlreadyExists(Conflict):
    """An object of that name already exists."""


class Transient(KubeError):
    """The request may succeed later. delay_s: pause that the server asks for, if any."""

    def __init__(self, message: str, delay_s: float | None = None) -> None:
        super().__init__(message)
        self.delay_s = delay_s


class Forbidden(Transient):
    """RBAC, a quota or pod security denies the request, until one of them changes."""


class CertificateError(Exception):
    """A certificate or its key cannot be used. The message names the file and has none of its content."""


class TokenFileError(Exception):
    """The file of a token cannot be used. The message names the file and has none of its content."""
