"""What can be wrong with what a user hands the engine.

ModelError          the model directory cannot be served, or not within the memory there is
"""


class ModelError(ValueError):
    """reason is a CamelCase word for machines, the message a sentence for people."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
