"""The prompt that a completion repeats: its text, and where its tokens begin in it."""

from penstock_engine.server.answers.logprobs import NameToken, text_offsets
from penstock_engine.server.generation.generator import Choice
from penstock_engine.server.requests.completion_request import CompletionRequest, GenerationRequest
from penstock_engine.text.tokens import Tokenizer


def echoed_text(request: GenerationRequest, choice: Choice, tokenizer: Tokenizer) -> str:
    """Returns the text of a choice's prompt, if the request repeats prompts; else "".

    It is the text that was sent, or that of the tokens, special ones included.
    """
    if not (request.echo and isinstance(request, CompletionRequest)):
        return ""
    sent = request.prompt[choice.index // request.n]
    if isinstance(sent, str) and request.truncation is None:
        return sent
    return tokenizer.decode(choice.prompt, skip_special_tokens=False)


def prompt_offsets(text: str, choice: Choice, name_token: NameToken) -> list[int]:
    """Returns where the tokens of a choice's prompt begin in its text.

    Tokens that the tokenizer added before the text, such as one that begins a sequence, have the offset 0.
    """
    tokens = [name_token(token) for token in choice.prompt]
    joined = b"".join(token.content for token in tokens).decode(errors="replace")
    return text_offsets([token.num_chars for token in tokens], -max(0, joined.find(text)))
