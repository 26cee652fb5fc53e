"""Reads ExternalModels for the routing snapshot."""

from decimal import Decimal

from penstock.clients.kubernetes.client import Object
from penstock.core.formats.quantity import parse_duration_s
from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.providers.external_model import (
    DEFAULT_CONNECT_S,
    DEFAULT_CURRENCY,
    DEFAULT_FIRST_BYTE_S,
    DEFAULT_REQUEST_S,
    DEFAULT_SECRET_KEY,
    ExternalModel,
    ExternalPrices,
    SecretKey,
)


def read_external(body: Object) -> ExternalModel:
    """Read one external model. Raises KeyError, TypeError or ValueError."""
    metadata, spec = body["metadata"], body["spec"]
    secret, limits, price = spec.get("keySecretRef"), spec.get("limits", {}), spec.get("price")
    times_s = {
        name: parse_duration_s(written) for name, written in spec.get("timeouts", {}).items()
    }
    return ExternalModel(
        namespace=metadata["namespace"],
        name=metadata["name"],
        created_s=int(parse_timestamp(metadata["creationTimestamp"])),
        url=spec["url"],
        api=spec["api"],
        model=spec["model"],
        secret=SecretKey(secret["name"], secret.get("key", DEFAULT_SECRET_KEY)) if secret else None,
        max_concurrent=limits.get("maxConcurrentRequests"),
        requests_per_minute=limits.get("requestsPerMinute"),
        tokens_per_minute=limits.get("tokensPerMinute"),
        prices=_prices(price) if price else None,
        connect_timeout_s=times_s.get("connect", DEFAULT_CONNECT_S),
        first_byte_timeout_s=times_s.get("firstByte", DEFAULT_FIRST_BYTE_S),
        request_timeout_s=times_s.get("request", DEFAULT_REQUEST_S),
    )


def _prices(price: Object) -> ExternalPrices:
    return ExternalPrices(
        Decimal(price["promptPerMillionTokens"]),
        Decimal(price["outputPerMillionTokens"]),
        price.get("currency", DEFAULT_CURRENCY),
    )
