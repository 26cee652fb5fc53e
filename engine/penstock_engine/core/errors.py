"""What can be wrong with what a user hands the engine, and with the engine itself.

ModelError          the model directory cannot be served, or not within the memory there is
RunnerLost          what computes the steps is gone, and does not come back
"""


class ModelError(ValueError):
    """reason is a CamelCase word for machines, the message a sentence for people."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class RunnerLost(RuntimeError):
    """Nothing is gained by trying the step again, or another one."""
