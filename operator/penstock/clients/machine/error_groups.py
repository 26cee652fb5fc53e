"""The error behind a group of errors, as task groups raise them."""


def innermost(error: BaseException) -> BaseException:
    """Return the first error that is no group, at any depth."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
