"""Exceptions of the engine.

ModelError          the model directory cannot be served, or not with the available memory
RunnerDiedError     the runner that computes the steps has died; the engine has to restart
"""


class ModelError(ValueError):
    """The model directory cannot be served.

    reason: a CamelCase word for machines. The message is a sentence for people.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class RunnerDiedError(RuntimeError):
    """The runner has died, for example because a worker process ended. No step can succeed."""
