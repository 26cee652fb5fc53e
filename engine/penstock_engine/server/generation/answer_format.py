"""Decides how the answer to a request is parsed and constrained: reasoning, tool calls, grammar."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock_engine.options.serve_options import ServeOptions
from penstock_engine.parsers.answer_parser import AnswerParser
from penstock_engine.parsers.reasoning_parser import THINK_END, THINK_START, ReasoningParser
from penstock_engine.parsers.tool_call_parser import ToolCallParser
from penstock_engine.parsers.tool_format import (
    HERMES,
    LLAMA3_JSON,
    MISTRAL,
    MISTRAL_11,
    MISTRAL_11_ARGS_TAG,
    PLAIN_LIST,
    Tool,
    ToolFormat,
)
from penstock_engine.server.generation.generator import Choice
from penstock_engine.server.requests.chat_request import ChatCompletionRequest, template_variables
from penstock_engine.server.requests.completion_request import GenerationRequest
from penstock_engine.server.requests.tools import NamedTool
from penstock_engine.server.transport.errors import RequestError
from penstock_engine.structured.compiler import CompilerBusy, GrammarCompiler
from penstock_engine.structured.grammar import Grammar, GrammarError, after_reasoning
from penstock_engine.structured.tool_calls import to_lark, tool_call_grammar
from penstock_engine.text.tokens import Tokenizer

TOOL_FORMATS = {"hermes": HERMES, "llama3_json": LLAMA3_JSON, "mistral": MISTRAL}

# Whether the answer begins inside reasoning if the prompt ends with neither <think> nor </think>.
BEGINS_WITH_REASONING = {"qwen3": False, "deepseek_r1": True}

PROMPT_TAIL_TOKENS = 16  # tokens at the end of the prompt that are searched for these tags


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFormat:
    """How the text of an answer is constrained, parsed and shown."""

    role: str = "assistant"  # role of the answer's message
    echoed: str = ""  # text of the prompt's last message, if the answer repeats it
    # Whether the answer begins inside reasoning; None: reasoning is not parsed
    is_thinking: bool | None = None
    shows_reasoning: bool = True  # whether the reasoning is sent to the client
    call_format: ToolFormat | None = None  # syntax of tool calls; None: calls are not parsed
    tool_names: frozenset[str] = frozenset()
    is_forced: bool = False  # whether the answer consists of calls only
    is_named: bool = False  # whether the request names the tool to call
    is_parallel: bool = True  # whether several calls are allowed
    shows_special: bool = False  # whether the tags are special tokens, which decoding must keep
    grammar: Grammar | None = None  # grammar of the whole text
    grammar_param: str | None = None  # the request's parameter that asks for it

    def new_parser(self) -> AnswerParser:
        """Returns a parser for one choice."""
        reasoning = None if self.is_thinking is None else ReasoningParser(is_open=self.is_thinking)
        calls = None
        if self.call_format is not None:
            calls = ToolCallParser(self.call_format, self.tool_names, is_forced=self.is_forced)
        return AnswerParser(reasoning, calls)

    @property
    def forced_opening(self) -> str:
        """Text that a grammar forces an answer to begin with; stop strings apply after it."""
        if self.call_format is None or not self.is_forced:
            return ""
        return self.call_format.call[0].partition("%s")[2]


def choose_answer_format(
    request: GenerationRequest, prompt: Sequence[int], tokenizer: Tokenizer, options: ServeOptions
) -> AnswerFormat:
    """Returns the format of a request's answer. prompt: tokens of the first choice's prompt.

    Raises RequestError if the request's tools or its output format are invalid.
    """
    param = "structured_outputs" if request.structured_outputs else "response_format"
    requested = request.structured_outputs or request.response_format
    try:
        answer_format = AnswerFormat(
            grammar=requested.grammar() if requested else None, grammar_param=param
        )
        if isinstance(request, ChatCompletionRequest):
            param = "tools"
            answer_format = replace(
                answer_format, role=request.answer_role, echoed=request.echoed_text
            )
            answer_format = _with_calls(answer_format, request, tokenizer, options)
            answer_format = _with_reasoning(answer_format, request, prompt, tokenizer, options)
    except GrammarError as error:
        raise RequestError(400, f"{param}: {error}", param=param) from error
    return answer_format


async def constrain(
    choices: Sequence[Choice], answer_format: AnswerFormat, compiler: GrammarCompiler | None
) -> None:
    """Compiles the format's grammar and gives each choice its own state in it. Raises RequestError."""
    if answer_format.grammar is None:
        return
    param = answer_format.grammar_param
    if compiler is None:
        message = "structured output is not possible with this model's tokenizer"
        raise RequestError(400, message, param=param)
    try:
        compiled = await compiler.compile(answer_format.grammar)
    except GrammarError as error:
        raise RequestError(400, f"{param}: {error}", param=param) from error
    except CompilerBusy as error:
        raise RequestError(503, "too many grammars wait to be compiled: try again") from error
    for choice in choices:
        choice.constraint = compiled.new_constraint()


def _with_calls(
    answer_format: AnswerFormat,
    request: ChatCompletionRequest,
    tokenizer: Tokenizer,
    options: ServeOptions,
) -> AnswerFormat:
    if not request.tools and request.tool_choice not in (None, "none", "auto"):
        raise RequestError(400, "tool_choice needs tools", param="tool_choice")
    tool_choice = request.effective_tool_choice
    if tool_choice == "none":
        return answer_format
    tools = [tool.tool() for tool in request.tools]
    call_format = _call_format(tokenizer, options)
    is_named = isinstance(tool_choice, NamedTool)
    if isinstance(tool_choice, NamedTool):
        tools = [tool for tool in tools if tool.name == tool_choice.function.name]
        if not tools:
            raise RequestError(400, "tool_choice names none of the tools", param="tool_choice")
    if tool_choice == "auto" and (call_format is None or not options.enable_auto_tool_choice):
        raise RequestError(
            400,
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
            param="tool_choice",
        )
    call_format = call_format or PLAIN_LIST
    specials = tokenizer.special_tokens
    answer_format = replace(
        answer_format,
        call_format=call_format,
        tool_names=frozenset(tool.name for tool in tools),
        is_forced=tool_choice != "auto",
        is_named=is_named,
        is_parallel=request.parallel_tool_calls and not is_named,
        shows_special=call_format.opening in specials,
    )
    is_free = (
        tool_choice == "auto"
        and answer_format.grammar is None
        and not any(t.is_strict for t in tools)
    )
    if is_free:
        return answer_format
    grammar = tool_call_grammar(
        call_format,
        tools if tool_choice != "auto" else [_without_schema(tool) for tool in tools],
        specials,
        is_many=answer_format.is_parallel,
        alternative=(answer_format.grammar or "text") if tool_choice == "auto" else None,
    )
    return replace(answer_format, grammar=grammar, grammar_param="tools")


def _without_schema(tool: Tool) -> Tool:
    """Drops the schema of a tool that is not strict: it need not be one that can be enforced."""
    return tool if tool.is_strict else replace(tool, parameters={})


def _call_format(tokenizer: Tokenizer, options: ServeOptions) -> ToolFormat | None:
    if options.tool_call_parser == "mistral" and MISTRAL_11_ARGS_TAG in tokenizer.special_tokens:
        return MISTRAL_11
    return TOOL_FORMATS[options.tool_call_parser] if options.tool_call_parser else None


def _with_reasoning(
    answer_format: AnswerFormat,
    request: ChatCompletionRequest,
    prompt: Sequence[int],
    tokenizer: Tokenizer,
    options: ServeOptions,
) -> AnswerFormat:
    if options.reasoning_parser is None:
        return answer_format
    is_thinking = _is_thinking(request, prompt, tokenizer, options.reasoning_parser)
    if is_thinking is None:
        return answer_format
    specials = tokenizer.special_tokens
    if answer_format.grammar is not None:
        opening = None if is_thinking else to_lark(THINK_START, specials)
        grammar = after_reasoning(answer_format.grammar, opening, to_lark(THINK_END, specials))
        answer_format = replace(answer_format, grammar=grammar)
    return replace(
        answer_format,
        is_thinking=is_thinking,
        shows_reasoning=request.include_reasoning,
        shows_special=answer_format.shows_special or THINK_END in specials,
    )


def _is_thinking(
    request: ChatCompletionRequest, prompt: Sequence[int], tokenizer: Tokenizer, parser: str
) -> bool | None:
    """Whether the answer begins inside reasoning; None: it has no reasoning."""
    variables = template_variables(request, tokenizer)
    if variables.get("enable_thinking") is False or variables.get("thinking") is False:
        return None
    continued = request.messages[-1].text if request.continue_final_message else ""
    if continued.strip():
        return True if continued.rfind(THINK_START) > continued.rfind(THINK_END) else None
    tail = tokenizer.decode(prompt[-PROMPT_TAIL_TOKENS:], skip_special_tokens=False).rstrip()
    if tail.endswith(THINK_END):
        return None
    return tail.endswith(THINK_START) or BEGINS_WITH_REASONING[parser]
