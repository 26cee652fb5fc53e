"""Schema of the engine's settings for making answers: speculative decoding, sampling and formats."""

import json
from typing import Annotated, Literal

from pydantic import Field

from penstock.api.schema.defaults import optional
from penstock.api.schema.model_uri import MAX_URI_LENGTH, MIN_URI_LENGTH, model_uri
from penstock.api.schema.rules import Model, Obeys, Rule, matches
from penstock.api.schema.scalars import ENGINE_WORD, MAX_DECIMAL_LENGTH, decimal

# Methods of speculative decoding that need a draft model, and those that have none. With other ones, such as
# vLLM's mtp, it depends on the model.
METHODS_WITH_MODEL = ("draft_model", "eagle", "eagle3")
NGRAM_METHODS = ("ngram", "ngram_gpu")
METHODS_WITHOUT_MODEL = (*NGRAM_METHODS, "suffix")


def _among(methods: tuple[str, ...]) -> str:
    """CEL: whether the method is one of these."""
    return f"self.method in {json.dumps(methods)}"


class DraftModel(Model):
    """Model that proposes drafts."""

    uri: Annotated[str, model_uri("spec.engine.speculative.model.uri")] = Field(
        description="Location of the draft model, as in spec.model.uri, such as pvc://models/draft.",
        min_length=MIN_URI_LENGTH,
        max_length=MAX_URI_LENGTH,
    )


class Ngram(Model):
    """Settings of method ngram."""

    RULES = (
        Rule(
            "!has(self.promptLookupMin) || !has(self.promptLookupMax) || "
            "self.promptLookupMin <= self.promptLookupMax",
            lambda ngram: (
                None in (ngram.prompt_lookup_min, ngram.prompt_lookup_max)
                or ngram.prompt_lookup_min <= ngram.prompt_lookup_max
            ),
            "promptLookupMin must not be greater than promptLookupMax",
        ),
    )

    prompt_lookup_min: int | None = optional(
        "Minimum size of the n-grams that are searched for in the text, in tokens, such as 2.",
        ge=1,
        le=16,
    )
    prompt_lookup_max: int | None = optional(
        "Maximum size of the n-grams that are searched for in the text, in tokens, such as 5.",
        ge=1,
        le=16,
    )


class Speculative(Model):
    """Speculative decoding: drafts of several tokens, which the model verifies in one step."""

    RULES = (
        Rule(
            f"has(self.model) || !({_among(METHODS_WITH_MODEL)})",
            lambda spec: spec.model is not None or spec.method not in METHODS_WITH_MODEL,
            f"model must be set with method {', '.join(METHODS_WITH_MODEL)}",
        ),
        Rule(
            f"!has(self.model) || !({_among(METHODS_WITHOUT_MODEL)})",
            lambda spec: spec.model is None or spec.method not in METHODS_WITHOUT_MODEL,
            f"model must not be set with method {', '.join(METHODS_WITHOUT_MODEL)}",
        ),
        Rule(
            f"!has(self.ngram) || {_among(NGRAM_METHODS)}",
            lambda spec: spec.ngram is None or spec.method in NGRAM_METHODS,
            "ngram requires method ngram; remove it, or set the method",
        ),
    )

    method: Annotated[str, ENGINE_WORD] = Field(
        description=(
            "Source of the drafts, in the runtime's spelling, such as ngram. Penstock: ngram and suffix "
            "search the text; draft_model and eagle need a model."
        ),
        min_length=1,
        max_length=32,
    )
    num_speculative_tokens: int = Field(
        description="Maximum number of draft tokens in a step, such as 4.", ge=1, le=32
    )
    model: DraftModel | None = optional(
        "Draft model. Required with methods that need one, such as draft_model."
    )
    ngram: Ngram | None = optional("Settings of method ngram.")


class SamplingDefaults(Model):
    """Sampling parameters of requests that set none."""

    temperature: Annotated[str, decimal(0, 2)] | None = optional(
        "Temperature as a decimal number in quotes, such as '0.7'. 0: greedy decoding.",
        max_length=MAX_DECIMAL_LENGTH,
    )
    top_p: Annotated[str, decimal(0.000001, 1)] | None = optional(
        "Probability mass of the tokens that are drawn from (nucleus sampling), such as '0.95'.",
        max_length=MAX_DECIMAL_LENGTH,
    )
    top_k: int | None = optional(
        "Number of the most likely tokens that are drawn from, such as 20. 0: all.",
        ge=0,
        le=1_000_000,
    )
    min_p: Annotated[str, decimal(0, 1)] | None = optional(
        "Minimum probability of a token, relative to the most likely one, such as '0.05'.",
        max_length=MAX_DECIMAL_LENGTH,
    )
    repetition_penalty: Annotated[str, decimal(0.01, 2)] | None = optional(
        "Penalty for tokens that the text contains already, such as '1.05'. 1: none.",
        max_length=MAX_DECIMAL_LENGTH,
    )
    max_tokens: int | None = optional(
        "Maximum number of tokens of every answer, such as 4096. Requests that ask for more get this "
        "number.",
        ge=1,
        le=10_000_000,
    )


class Generation(Model):
    """Sampling parameters of requests that set none. They are part of the revision."""

    source: Literal["Model", "None"] | None = optional(
        "Where defaults come from that are not set here. Model: the model's generation_config.json. "
        "None: the engine's neutral values. Default: Model."
    )
    defaults: SamplingDefaults = Field(
        default=SamplingDefaults(), description="Values that override those of the source."
    )


class ConfigMapKeyRef(Model):
    """Key of a ConfigMap in the same namespace."""

    name: Annotated[
        str,
        Obeys(matches(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", "must be the name of a ConfigMap")),
    ] = Field(
        description="Name of the ConfigMap, such as chat-templates.", min_length=1, max_length=253
    )
    key: Annotated[str, Obeys(matches(r"^[-._a-zA-Z0-9]+$", "must be a key of a ConfigMap"))] = (
        Field(description="Key in the ConfigMap, such as chat.jinja.", min_length=1, max_length=253)
    )


class ChatTemplate(Model):
    """Jinja template that makes a prompt of messages."""

    config_map_key_ref: ConfigMapKeyRef = Field(
        description=(
            "Key of a ConfigMap that contains the template. Engines read it when they start; a change of "
            "the ConfigMap makes no new revision, so give a new template a new ConfigMap."
        )
    )


class Parsers(Model):
    """Formats of prompts and answers."""

    tool_call: Annotated[str, ENGINE_WORD] | None = optional(
        "Format in which the model writes tool calls, in the runtime's spelling, such as hermes. "
        "Penstock: hermes, llama3_json or mistral. Required for requests with tool_choice: auto.",
        min_length=1,
        max_length=64,
    )
    reasoning: Annotated[str, ENGINE_WORD] | None = optional(
        "Format in which the model writes its reasoning, in the runtime's spelling, such as qwen3. "
        "Penstock: qwen3 or deepseek_r1.",
        min_length=1,
        max_length=64,
    )
    chat_template: ChatTemplate | None = optional("Chat template. Default: the model's own.")
