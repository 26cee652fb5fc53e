"""Requests of an API: the fields that the gateway reads of a body."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_core import ValidationError

from penstock.core.routing.affinity import Affinity
from penstock.core.routing.apis import Api
from penstock.core.routing.prefix.prompt_prefix import NO_PREFIX, PromptPrefix, hash_text
from penstock.core.routing.prompt_kinds import BYTES_PER_TOKEN
from penstock.core.routing.request_attributes import RequestAttributes
from penstock.core.routing.route_match import DEFAULT_SERVICE_TIER, SERVICE_TIERS
from penstock.gateway.apis.errors import RequestError
from penstock.gateway.apis.model_field import add_field, add_fields, replace_model
from penstock.gateway.apis.request_schema import SAMPLING_FIELDS, request_schema

# Assumed length of a response, for the estimate of KV cache use.
ASSUMED_OUTPUT_TOKENS = 256
# Bound on lists and objects in one body: 4 MiB of `[],` have 1.4 million, which would stop the event
# loop for 0.2 to 0.7 s. Brackets in text count too: the densest of 19 JSON files would have 61,000 in
# 4 MiB, Python code 20,000.
MAX_CONTAINERS = 100_000
# Bound on the fields of all objects in one body: 4 MiB have 420,000 with different names, which would stop
# the event loop for 0.2 s. Fields in text count too: JSON with short names would have 180,000 in 4 MiB.
MAX_FIELDS = 200_000
# Bound on the commas in one body: a list of 4 MiB has two million numbers, which would stop the event loop
# for 0.16 s. A prompt of 800,000 token ids fits. Commas in text count too.
MAX_COMMAS = 800_000
# A name ends with a quote, before a colon or a blank.
ENDS_OF_NAMES = (b'":', b'" ', b'"\n', b'"\r', b'"\t')
# Larger numbers of tokens and choices count as this one. No engine generates as much, and a client may write
# thousands of digits, of which neither metrics nor the store of quotas could keep the sum.
MAX_COUNT = 10**9
# A `user` is an identifier. A longer one counts as absent: no ModelRoute matches it.
MAX_USER_CHARACTERS = 512


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """A request of an API, or of a variant: its body as bytes, and the fields that routing needs.

    The parsed body is not kept, as it may be 30 times as large as the bytes.
    """

    api: Api
    model: str
    body: bytes
    is_stream: bool
    user: str | None  # None when absent
    attributes: RequestAttributes
    prompt_bytes: int  # length of the prompt's text
    is_text_only: bool = True  # whether the prompt has no images or other media
    # Whether it asks for a stream without the event that has only the usage
    hides_usage: bool = False
    # Latency tier that it asks for, of OpenAI's; empty: one that OpenAI does not have
    service_tier: str = DEFAULT_SERVICE_TIER
    previous_response: str = (
        ""  # id of the stored response that it continues; empty if it continues none
    )
    # Tokens that it allows to generate for each choice, and the number of choices for all prompts together.
    # None: it says nothing
    max_output_tokens: int | None = None
    num_choices: int = 1
    num_prompts: int = 1
    # Numbers in the body that limits of ModelRoutes hold for, by their fields
    sampling: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_flex(self) -> bool:
        """Whether it may wait for what other requests leave idle."""
        return self.service_tier == "flex"

    @property
    def prompt_tokens(self) -> int:
        """Estimated tokens of the prompt, before it is known which model gets it."""
        return self.prompt_bytes // BYTES_PER_TOKEN

    @property
    def stated_output_tokens(self) -> int | None:
        """Most tokens that it allows for each choice, by its fields or its API; None: it sets no bound."""
        if not self.api.generates and not self.api.output_bounds:
            return 0
        return self.max_output_tokens or self.api.default_output_tokens

    @property
    def tokens(self) -> int:
        """Estimated tokens in the KV cache at the end of the request."""
        return self.prompt_tokens + (ASSUMED_OUTPUT_TOKENS if self.api.generates else 0)

    def affinity_key(self, by: Affinity) -> bytes | None:
        """The key that requests share to stay on one side; None: the request has none."""
        match by:
            case "None":
                return None
            case "User":
                return self.attributes.user_key
            case "Conversation":
                return self.attributes.conversation_key

    def with_model(self, served_name: str) -> "InferenceRequest":
        """Set `model` to the name that the engine serves. Returns self if it has that name already."""
        if served_name == self.model:
            return self
        body = replace_model(self.body, self.model, served_name)
        return replace(self, model=served_name, body=body)

    def with_output_bound(self, max_output_tokens: int) -> "InferenceRequest":
        """Set the field that bounds the generated tokens of each choice."""
        body = add_field(self.body, self.api.output_bounds[0], max_output_tokens)
        return replace(self, body=body, max_output_tokens=max_output_tokens)

    def with_sampling(self, fields: Mapping[str, float]) -> "InferenceRequest":
        """Set fields that say what to generate. Returns self if there are none."""
        if not fields:
            return self
        sampling = {**self.sampling, **fields}
        return replace(
            self,
            body=add_fields(self.body, fields),
            sampling=sampling,
            max_output_tokens=_output_bound(self.api, sampling),
            num_choices=min(int(sampling.get("n", 1)) * self.num_prompts, MAX_COUNT),
        )

    def without_body(self) -> "InferenceRequest":
        """Return the fields alone, for what outlives the body."""
        return replace(self, body=b"")


def parse(body: bytes, api: Api) -> InferenceRequest:
    """Read the fields that routing needs from the body of a request of an API. Raises RequestError."""
    _check_size(body)
    try:
        fields = request_schema(api).validate_json(body)
    except ValidationError as error:
        message = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise RequestError(400, f"the request body cannot be read: {message}") from None
    model, user = fields.get("model"), fields.get("user")
    if not model:
        raise RequestError(400, "you must provide a model, as a string", param="model")
    if user is not None and len(user) > MAX_USER_CHARACTERS:
        user = None
    wants_usage = (fields.get("stream_options") or {}).get("include_usage")
    prompt, variant = api.prompt_of(fields), api.variant_of(fields)
    sampling = _sampling(variant, fields)
    text = prompt.encoded
    prefix = _prefix(variant, fields, text)
    is_stream = variant.generates and fields.get("stream", False)
    return InferenceRequest(
        variant,
        model,
        body,
        is_stream,
        user,
        RequestAttributes.of(fields, prompt, prefix),
        prompt_bytes=len(text),
        is_text_only=prompt.is_text_only,
        hides_usage=is_stream and variant.errors == "OpenAI" and not wants_usage,
        service_tier=_service_tier(fields.get("service_tier")),
        previous_response=fields.get("previous_response_id") or "",
        max_output_tokens=_output_bound(variant, sampling),
        num_choices=min(int(sampling.get("n", 1)) * prompt.num_prompts, MAX_COUNT),
        num_prompts=prompt.num_prompts,
        sampling=sampling,
    )


def _check_size(body: bytes) -> None:
    """Raise RequestError if a body has too many values to be parsed on the event loop."""
    # Brackets in text count as well: telling them apart would cost more than parsing.
    if body.count(b"[") + body.count(b"{") > MAX_CONTAINERS:
        message = f"the request body has more than {MAX_CONTAINERS} lists and objects"
        raise RequestError(400, message)
    if sum(map(body.count, ENDS_OF_NAMES)) > MAX_FIELDS:
        raise RequestError(400, f"the request body has more than {MAX_FIELDS} fields")
    if body.count(b",") > MAX_COMMAS:
        raise RequestError(
            400, f"the request body has more than {MAX_COMMAS} commas between values"
        )


def _prefix(api: Api, fields: Mapping[str, Any], text: bytes) -> PromptPrefix:
    """Beginnings of the prompt of a parsed body, which an engine may have cached. text: of the prompt."""
    if not api.generates:
        return NO_PREFIX
    salt = fields.get("cache_salt") or ""
    return hash_text(text, salt.encode("utf-8", "surrogatepass"))


def _sampling(api: Api, fields: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a parsed body that say what to generate, by their fields."""
    names = (*SAMPLING_FIELDS, *api.output_bounds, *api.logprobs)
    stated = {name: fields.get(name) for name in names}
    return {name: min(value, MAX_COUNT) for name, value in stated.items() if value is not None}


def _output_bound(api: Api, sampling: Mapping[str, float]) -> int | None:
    """Most tokens that a body allows for each choice; None: it says nothing."""
    return int(max((sampling.get(name, 0) for name in api.output_bounds), default=0)) or None


def _service_tier(stated: str | None) -> str:
    """The tier that a body states: the default if it states none, and empty if the tier is unknown."""
    if stated is None:
        return DEFAULT_SERVICE_TIER
    return stated if stated in SERVICE_TIERS else ""
