"""Tokenizer and chat template of a model."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerFast

from penstock_engine.checkpoints.gguf.file import find_gguf, read_gguf
from penstock_engine.core.errors import ModelError
from penstock_engine.text.template import TemplateOptions, check_own_templates, loops_over_content
from penstock_engine.text.token_bytes import TokenBytes

NO_VARIABLES: Mapping[str, Any] = {}
MODELS_OWN = TemplateOptions()

# Exceptions of rendering a chat template, which is a program with input from a client.
RENDER_ERRORS = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
)


class ChatTemplateError(ValueError):
    """The chat template failed on these messages; the client gets the text as an error."""


class Tokenizer:
    """Tokenizer and chat template of one model.

    Methods only use the CPU, and may take long, so call them outside of an event loop.
    """

    def __init__(self, model_dir: Path, template: TemplateOptions = MODELS_OWN) -> None:
        """Load the tokenizer of a directory or GGUF file. Raises ModelError if it cannot be read."""
        self._tokenizer = _load(model_dir)
        self.template = template
        if template.text is None:
            check_own_templates(model_dir)
        else:
            self._tokenizer.chat_template = template.text
        self._backend = self._tokenizer.backend_tokenizer
        # No text of n tokens has more characters than n times this.
        self.max_token_chars = max(map(len, self._backend.get_vocab()), default=1)

    @property
    def has_chat_template(self) -> bool:
        given = self._tokenizer.chat_template
        return "default" in given if isinstance(given, dict) else bool(given)

    @property
    def takes_tools(self) -> bool:
        """Whether the chat template shows tools to the model."""
        return self.template_reads("tools")

    def template_reads(self, name: str) -> bool:
        """Whether the chat template mentions this variable."""
        return self.has_chat_template and name in str(self._tokenizer.chat_template)

    @cached_property
    def takes_parts(self) -> bool:
        """Whether the chat template is given the content of messages as a list of parts."""
        given = self.template.content_format
        if given == "auto":
            return self.has_chat_template and loops_over_content(str(self._tokenizer.chat_template))
        return given == "openai"

    def describe(self) -> dict[str, Any]:
        """The settings of tokenizer_config.json, with the chat template and the class name."""
        settings = {
            name: _written(value)
            for name, value in self._tokenizer.init_kwargs.items()
            if not name.endswith("_file") and name != "name_or_path"
        }
        described = settings | {"tokenizer_class": type(self._tokenizer).__name__}
        if self.has_chat_template:
            described["chat_template"] = self._tokenizer.chat_template
        return described

    @cached_property
    def special_tokens(self) -> dict[str, int]:
        """Ids of the special tokens, by their texts."""
        added = self._tokenizer.added_tokens_decoder.items()
        return {token.content: token_id for token_id, token in added if token.special}

    @property
    def vocab_size(self) -> int:
        size: int = self._backend.get_vocab_size(with_added_tokens=True)
        return size

    def token_id(self, text: str) -> int | None:
        """Id of the token with this text, such as an added one."""
        found: int | None = self._backend.token_to_id(text)
        return found

    def to_json(self) -> str:
        """The tokenizer in the format of tokenizer.json, with all added tokens."""
        text: str = self._backend.to_str()
        return text

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        return ids

    def render_chat(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] = (),
        variables: Mapping[str, Any] = NO_VARIABLES,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
    ) -> str:
        """Render messages to a prompt with the chat template, which runs in a sandbox.

        variables: additional variables of the template. Raises ChatTemplateError, with the message
        that the template raised, if any.
        """
        try:
            text = self._tokenizer.apply_chat_template(
                list(messages),
                tools=list(tools) or None,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                **variables,
            )
        except RENDER_ERRORS as error:
            detail = f": {error}" if type(error) is TemplateError else ""
            raise ChatTemplateError(
                f"the model's chat template does not take these messages{detail}"
            ) from error
        return str(text)

    def words(self, ids: Sequence[int]) -> list[str]:
        """Entries of the vocabulary for token ids; they may differ from the decoded text."""
        return [self._backend.id_to_token(token) or "" for token in ids]

    @cached_property
    def _bytes(self) -> TokenBytes:
        return TokenBytes(self._backend)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for, which may be part of a character."""
        return self._bytes.read(token_id)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        text: str = self._backend.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text


def _written(value: Any) -> Any:
    """A tokenizer setting as JSON; an added token becomes its text."""
    if isinstance(value, dict):
        return {str(key): _written(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_written(inner) for inner in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _load(model_dir: Path) -> PreTrainedTokenizerFast:
    if (path := find_gguf(model_dir)) is not None:
        # Takes 0.2 s to import.
        from penstock_engine.checkpoints.gguf.tokenizer import load_tokenizer

        return load_tokenizer(read_gguf(path))
    try:
        tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(
            str(model_dir), local_files_only=True
        )
    except Exception as error:  # damaged files lead to exceptions of any type
        raise ModelError("NoTokenizer", "the tokenizer cannot be read") from error
    return tokenizer
