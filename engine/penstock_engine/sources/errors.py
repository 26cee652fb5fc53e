"""The exception of a fetch that cannot go on."""


class FetchError(Exception):
    """A model cannot be fetched.

    reason: a CamelCase word for machines, such as the reason of a condition. message: a sentence that says
    what is wrong and what to change, without secrets. is_retryable: whether the same fetch may succeed when
    it is tried again. retry_after_s: how long the server asks to wait; None: it does not say.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        is_retryable: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason, self.message = reason, message
        self.is_retryable, self.retry_after_s = is_retryable, retry_after_s
