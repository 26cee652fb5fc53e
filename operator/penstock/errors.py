"""What an outside system can answer instead of doing what was asked.

KubeError(Exception)
  Rejected      the request is wrong and stays wrong until its content changes
  NotFound      there is no such object
  Conflict      the object has changed since it was read, or a quota changed at the same time
    AlreadyExists   there is an object of that name
  Transient     try again later; `delay_s` is the server's wish, if it has one
    Forbidden   rights, a quota or the namespace's pod security say no, as long as they stay so
"""


class KubeError(Exception):
    """The API server did not do what was asked."""


class Rejected(KubeError):
    """The request is wrong and stays wrong until its content changes."""


class NotFound(KubeError):
    """There is no such object."""


class Conflict(KubeError):
    """The object, or a quota that counts it, changed meanwhile."""


class AlreadyExists(Conflict):
    """An object of that name exists already."""


class Transient(KubeError):
    """Try again later."""

    def __init__(self, message: str, delay_s: float | None = None) -> None:
        super().__init__(message)
        self.delay_s = delay_s


class Forbidden(Transient):
    """Rights, a quota or the namespace's pod security say no, as long as they stay so."""
