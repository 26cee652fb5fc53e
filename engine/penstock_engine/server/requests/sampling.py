"""Converts the sampling fields of a request to SamplingParams."""

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.server.requests.completion_request import CompletionRequest, GenerationRequest
from penstock_engine.server.transport.errors import RequestError
from penstock_engine.text.tokens import Tokenizer

MAX_SEED = 2**63


def sampling_params(
    request: GenerationRequest,
    tokenizer: Tokenizer,
    *,
    max_tokens: int,
    seed: int,
    vocab_size: int,
    max_logprobs: int,
) -> SamplingParams:
    """Returns the sampling parameters of a choice, with OpenAI's defaults. Raises RequestError.

    seed: of this choice. max_logprobs: maximum number of log-probabilities per position.
    """
    has_echo = request.echo and isinstance(request, CompletionRequest)
    _check_token_ids(request, vocab_size)
    num_logprobs = _bounded(request.logprobs_param, request.num_logprobs, vocab_size, max_logprobs)
    prompt_logprobs = _bounded("prompt_logprobs", request.prompt_logprobs, vocab_size, max_logprobs)
    _check_lengths(request, max_tokens, has_echo=has_echo)
    logprob_token_ids = tuple(request.logprob_token_ids or ())
    if logprob_token_ids and num_logprobs is not None:
        num_logprobs = 0  # these tokens replace the most likely ones
    if has_echo and prompt_logprobs is None:
        prompt_logprobs = num_logprobs
    allowed = request.allowed_token_ids
    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=request.min_tokens or 0,
        temperature=1.0 if request.temperature is None else request.temperature,
        top_p=1.0 if request.top_p is None else request.top_p,
        top_k=max(0, request.top_k or 0),  # 0 and -1 both mean no limit
        min_p=request.min_p or 0.0,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        repetition_penalty=request.repetition_penalty,
        logit_bias=request.logit_bias,
        bad_words=tuple(_bad_word_tokens(request, tokenizer)),
        allowed_token_ids=None if allowed is None else frozenset(allowed),
        # Clients have one list for several models. A token that the model lacks never comes.
        stop_token_ids=frozenset(t for t in request.stop_token_ids or () if t < vocab_size),
        ignore_eos=request.ignore_eos,
        seed=seed,
        wants_embedding=request.wants_embedding,
        logprobs=num_logprobs,
        logprob_token_ids=logprob_token_ids,
        prompt_logprobs=prompt_logprobs,
    )


def _check_lengths(request: GenerationRequest, max_tokens: int, *, has_echo: bool) -> None:
    if (request.min_tokens or 0) > max_tokens:
        raise RequestError(
            400, f"min_tokens must not be more than max_tokens ({max_tokens})", param="min_tokens"
        )
    if request.only_scores_prompt and not has_echo:
        raise RequestError(
            400, "max_tokens must be at least 1 without echo: true", param="max_tokens"
        )


def _bounded(name: str, requested: int | None, vocab_size: int, max_logprobs: int) -> int | None:
    """Resolves -1, which means the whole vocabulary. Raises RequestError above max_logprobs."""
    if requested is None:
        return None
    number = vocab_size if requested == -1 else requested
    if number > max_logprobs:
        amount = f"-1, which is all {vocab_size}, is" if requested == -1 else f"{requested} is"
        raise RequestError(
            400, f"{name}: {amount} more than {max_logprobs} (--max-logprobs)", param=name
        )
    return number


def _check_token_ids(request: GenerationRequest, vocab_size: int) -> None:
    for name, tokens in (
        ("allowed_token_ids", request.allowed_token_ids),
        ("logit_bias", request.logit_bias),
        ("logprob_token_ids", request.logprob_token_ids),
    ):
        if any(token >= vocab_size for token in tokens or ()):
            raise RequestError(400, f"the model has no such token in {name}", param=name)


def _bad_word_tokens(request: GenerationRequest, tokenizer: Tokenizer) -> set[tuple[int, ...]]:
    """Returns the tokens of each bad word, as the first word of a text and after a space."""
    variants: set[tuple[int, ...]] = set()
    for word in request.bad_words:
        for text in (word.lstrip(), " " + word.lstrip()):
            tokens = tokenizer.encode(text, add_special_tokens=False)
            if tokens:
                variants.add(tuple(tokens))
    return variants
