"""Lowers what a request asks for to the limits of the rule that it follows."""

from penstock.core.routing.route import RouteRule
from penstock.gateway.apis.request import InferenceRequest
from penstock.gateway.http.client import ClientResponse


def limit_sampling(
    request: InferenceRequest, rule: RouteRule, client: ClientResponse
) -> InferenceRequest:
    """Return the request within the limits of a rule. The response tells the client which fields were set."""
    if rule.sampling is None:
        return request
    fields = rule.sampling.fields_to_set(request.api, request.sampling)
    client.limited_fields = tuple(fields)
    return request.with_sampling(fields)
