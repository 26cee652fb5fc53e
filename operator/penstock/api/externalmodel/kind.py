"""Schema of ExternalModel, serving.penstock.dev/v1alpha1."""

from typing import Annotated

from pydantic import Field

from penstock.api.schema.defaults import optional
from penstock.api.schema.references import ObjectName
from penstock.api.schema.rules import Model, Obeys, matches
from penstock.api.schema.scalars import MAX_DECIMAL_LENGTH, PositiveDuration, decimal
from penstock.core.providers.external_model import (
    DEFAULT_CONNECT_S,
    DEFAULT_CURRENCY,
    DEFAULT_FIRST_BYTE_S,
    DEFAULT_REQUEST_S,
    DEFAULT_SECRET_KEY,
)
from penstock.core.providers.external_urls import URL_PATTERN
from penstock.core.routing.apis import ProviderApi

KIND = "ExternalModel"
PLURAL = "externalmodels"
# Names are labels of metrics, as those of services.
MAX_NAME_LENGTH = 63
MAX_COUNT = 1_000_000_000

_URL = Obeys(
    matches(
        URL_PATTERN,
        "must be a URL such as https://api.example.com, without a user, a query or %-escapes",
    )
)
_PRICE = decimal(0, 1e12)


class KeySecretRef(Model):
    """Key of a Secret of the same namespace."""

    name: ObjectName = Field(
        description="Name of the Secret, such as provider-key.", min_length=1, max_length=253
    )
    key: Annotated[str, Obeys(matches(r"^[-._a-zA-Z0-9]+$", "must be a key of a Secret"))] = Field(
        default=DEFAULT_SECRET_KEY, description="Key in the Secret.", min_length=1, max_length=253
    )


class ExternalLimits(Model):
    """Limits of what each gateway sends. At a limit requests go to the next fallback, or get a 503."""

    max_concurrent_requests: int | None = optional(
        "Requests at a time. Default: no limit.", ge=1, le=MAX_COUNT
    )
    requests_per_minute: int | None = optional(
        "Requests in a minute. Default: no limit.", ge=1, le=MAX_COUNT
    )
    tokens_per_minute: int | None = optional(
        "Tokens of prompts and answers in a minute, after which nothing is sent until fewer were used. "
        "Default: no limit.",
        ge=1,
        le=MAX_COUNT,
    )


class ExternalPrice(Model):
    """Prices of the provider, for the metric of costs."""

    prompt_per_million_tokens: Annotated[str, _PRICE] = Field(
        description="Price of a million tokens of prompts, such as '0.15'.",
        max_length=MAX_DECIMAL_LENGTH,
    )
    output_per_million_tokens: Annotated[str, _PRICE] = Field(
        description="Price of a million tokens of answers, such as '0.60'.",
        max_length=MAX_DECIMAL_LENGTH,
    )
    currency: Annotated[
        str, Obeys(matches(r"^[A-Z]{3}$", "must be three letters, such as USD"))
    ] = Field(
        default=DEFAULT_CURRENCY,
        description="Currency of the prices by ISO 4217, such as EUR.",
        max_length=3,
    )


class ExternalTimeouts(Model):
    """Time limits of requests to the provider, within those of the route and the gateway."""

    connect: PositiveDuration | None = optional(
        f"Time to connect. Default: {DEFAULT_CONNECT_S:.0f}s."
    )
    first_byte: PositiveDuration | None = optional(
        f"Time to the first byte of a stream. Default: {DEFAULT_FIRST_BYTE_S:.0f}s."
    )
    request: PositiveDuration | None = optional(
        f"Time to the end of a response that is no stream. Default: {DEFAULT_REQUEST_S / 60:.0f}m."
    )


class ExternalModelSpec(Model):
    """Desired state of the external model."""

    url: Annotated[str, _URL] = Field(
        description=(
            "URL of the provider, to which the path of the API is added, such as https://api.example.com for "
            "https://api.example.com/v1/chat/completions. Gateways send requests only to URLs that an "
            "administrator has allowed."
        ),
        min_length=1,
        max_length=1024,
    )
    api: ProviderApi = Field(
        description="API that the provider speaks. OpenAI also for the gateway of another cluster."
    )
    model: str = Field(
        description="Name of the model at the provider, such as gpt-4o-mini.",
        min_length=1,
        max_length=256,
    )
    key_secret_ref: KeySecretRef | None = optional(
        "Secret of the same namespace that has the API key of the provider. Gateways need the right to get "
        "it. Default: requests have no key."
    )
    limits: ExternalLimits | None = optional("Limits of what each gateway sends.")
    price: ExternalPrice | None = optional("Prices of the provider.")
    timeouts: ExternalTimeouts | None = optional("Time limits of requests to the provider.")


class ExternalModel(Model):
    """A model of a provider, or of another cluster, to which ModelRoutes may send requests."""

    spec: ExternalModelSpec = Field(description="Desired state, written by users.")
