"""Bounds that a tenant has for each request: its prompt, and what it may generate."""

from penstock.core.tenants.tenant import RequestLimits
from penstock.gateway.apis.errors import RequestError
from penstock.gateway.apis.request import InferenceRequest


def bound_request(
    request: InferenceRequest, limits: RequestLimits, prompt_tokens: int
) -> InferenceRequest:
    """Return the request with a bound on its output if the tenant has one. Raises RequestError.

    prompt_tokens: estimated. The bound holds for all choices together.
    """
    most = limits.prompt_tokens
    if most is not None and prompt_tokens > most:
        message = f"the prompt has about {prompt_tokens} tokens, and this tenant may send {most}: shorten it"
        raise RequestError(400, message, code="context_length_exceeded")
    most = limits.output_tokens
    if most is None or not request.api.output_bounds:
        return request
    field, choices = request.api.output_bounds[0], request.num_choices
    asked = request.max_output_tokens
    if choices > most:
        message = (
            f"n and the prompts ask for {choices} answers, and this tenant may generate {most} tokens in a "
            "request: lower n, or send fewer prompts"
        )
        raise RequestError(400, message, param="n")
    if asked is not None and asked * choices > most:
        fields = " or ".join(request.api.output_bounds)  # the request has one of them
        message = f"this tenant may generate {most} tokens in a request: lower {fields} to {most // choices}"
        raise RequestError(400, message, param=field)
    if asked is not None:
        return request
    allowed = most // choices
    usual = request.api.default_output_tokens
    return request.with_output_bound(allowed if usual is None else min(usual, allowed))
