"""Applies `thinking_token_budget`, the maximum number of tokens of an answer's reasoning."""

from collections.abc import Sequence

from penstock_engine.options.serve_options import ServeOptions
from penstock_engine.parsers.reasoning_parser import THINK_END, THINK_START
from penstock_engine.server.generation.answer_format import AnswerFormat
from penstock_engine.server.generation.generator import Choice
from penstock_engine.server.requests.chat_request import ChatCompletionRequest
from penstock_engine.server.requests.completion_request import GenerationRequest
from penstock_engine.server.transport.errors import RequestError
from penstock_engine.structured.thinking_budget import ThinkingBudget
from penstock_engine.text.tokens import Tokenizer

PARAM = "thinking_token_budget"


def apply_thinking_budget(
    choices: Sequence[Choice],
    request: GenerationRequest,
    answer_format: AnswerFormat,
    tokenizer: Tokenizer,
    options: ServeOptions,
) -> None:
    """Adds a reasoning budget to each choice's constraint, if the request has one.

    -1 is no budget. An answer without reasoning gets none. Raises RequestError without a reasoning
    parser.
    """
    num_tokens = request.thinking_token_budget
    if num_tokens in (None, -1):
        return
    if options.reasoning_parser is None:
        raise RequestError(
            400,
            f"{PARAM} (thinking.budget_tokens of /v1/messages) needs an engine with "
            "--reasoning-parser: leave it out",
            param=PARAM,
        )
    closing = tuple(tokenizer.encode(THINK_END, add_special_tokens=False))
    is_chat = isinstance(request, ChatCompletionRequest)
    for choice in choices:
        is_open = (
            answer_format.is_thinking if is_chat else _ends_in_reasoning(choice.prompt, tokenizer)
        )
        if is_open is not None:
            choice.constraint = ThinkingBudget(
                choice.constraint,
                lambda token_id: tokenizer.decode([token_id], skip_special_tokens=False),
                closing,
                num_tokens=num_tokens,
                is_open=is_open,
            )


def _ends_in_reasoning(prompt: list[int], tokenizer: Tokenizer) -> bool:
    """Whether a prompt ends between <think> and </think>."""
    text = tokenizer.decode(prompt, skip_special_tokens=False)
    return text.rfind(THINK_START) > text.rfind(THINK_END)
