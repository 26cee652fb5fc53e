"""Types of errors in the form of OpenAI's API."""

# Types by status, of those that are no invalid request. litellm takes each invalid_request_error for a 400.
OPENAI_TYPES = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    429: "rate_limit_error", 502: "upstream_error", 504: "upstream_error",
}  # fmt: skip


def openai_error_type(status: int, code: str | None) -> str:
    """Return the type of an error. code: that of the error object; None: it has no code of its own."""
    if status in OPENAI_TYPES:
        return OPENAI_TYPES[status]
    if status == 503:
        return "overloaded_error" if code is None else "unavailable_error"
    return "invalid_request_error" if status < 500 else "internal_error"
