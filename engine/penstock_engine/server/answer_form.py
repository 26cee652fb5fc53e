"""What the answer to a request is made of: reasoning, calls, text in a given form."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
from penstock_engine.serve_options import ServeOptions
from penstock_engine.server.chat_request import ChatCompletionRequest, template_variables
from penstock_engine.server.errors import RequestError
from penstock_engine.server.generation import Choice
from penstock_engine.server.schemas import GenerationRequest
from penstock_engine.server.tools import NamedTool
from penstock_engine.structured.compiler import CompilerBusy, GrammarCompiler
from penstock_engine.structured.grammar import Grammar, GrammarError, after_reasoning
from penstock_engine.structured.tool_calls import to_lark, tool_call_grammar
from penstock_engine.tokens import Tokenizer

TOOL_FORMATS = {"hermes": HERMES, "llama3_json": LLAMA3_JSON, "mistral": MISTRAL}

# Whether a model reasons whose prompt ends with neither tag and who has not begun with one.
REASONS_UNTOLD = {"qwen3": False, "deepseek_r1": True}

PROMPT_TAIL_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForm:
    """role: whose message the answer is. echoed: the text of the prompt's last message, where the
    answer repeats it.

    is_thinking: whether the answer begins within reasoning; None: reasoning is not looked for.

    call_format: how calls are written; None: calls are not looked for. is_named: whether the
    request names the tool to call. shows_special: whether tags are special tokens. grammar: what
    the whole text must fit, because of grammar_param.
    """

    role: str = "assistant"
    echoed: str = ""
    is_thinking: bool | None = None
    shows_reasoning: bool = True
    call_format: ToolFormat | None = None
    tool_names: frozenset[str] = frozenset()
    is_named: bool = False
    is_parallel: bool = True
    shows_special: bool = False
    grammar: Grammar | None = None
    grammar_param: str | None = None

    def stream(self) -> AnswerParser:
        think = None if self.is_thinking is None else ReasoningParser(is_open=self.is_thinking)
        calls = (
            None if self.call_format is None else ToolCallParser(self.call_format, self.tool_names)
        )
        return AnswerParser(think, calls)


def answer_form(
    request: GenerationRequest, prompt: Sequence[int], tokenizer: Tokenizer, options: ServeOptions
) -> AnswerForm:
    """prompt: of the first choice. Raises RequestError."""
    param = "structured_outputs" if request.structured_outputs else "response_format"
    asked = request.structured_outputs or request.response_format
    try:
        form = AnswerForm(grammar=asked.grammar() if asked else None, grammar_param=param)
        if isinstance(request, ChatCompletionRequest):
            param = "tools"
            form = replace(form, role=request.answer_role, echoed=request.echoed_text)
            form = _with_calls(form, request, tokenizer, options)
            form = _with_reasoning(form, request, prompt, tokenizer, options)
    except GrammarError as error:
        raise RequestError(400, f"{param}: {error}", param=param) from error
    return form


async def constrain(
    choices: Sequence[Choice], form: AnswerForm, compiler: GrammarCompiler | None
) -> None:
    """Gives each choice its own place in the grammar. Raises RequestError."""
    if form.grammar is None:
        return
    param = form.grammar_param
    if compiler is None:
        message = "structured output is not possible with this model's tokenizer"
        raise RequestError(400, message, param=param)
    try:
        compiled = await compiler.compile(form.grammar)
    except GrammarError as error:
        raise RequestError(400, f"{param}: {error}", param=param) from error
    except CompilerBusy as error:
        raise RequestError(503, "too many grammars wait to be compiled: try again") from error
    for choice in choices:
        choice.constraint = compiled.new_constraint()


def _with_calls(
    form: AnswerForm, request: ChatCompletionRequest, tokenizer: Tokenizer, options: ServeOptions
) -> AnswerForm:
    if not request.tools and request.tool_choice not in (None, "none", "auto"):
        raise RequestError(400, "tool_choice needs tools", param="tool_choice")
    asked = request.asked_tool_choice
    if asked == "none":
        return form
    tools = [tool.tool() for tool in request.tools]
    call_format = _call_format(tokenizer, options)
    is_named = isinstance(asked, NamedTool)
    if isinstance(asked, NamedTool):
        tools = [tool for tool in tools if tool.name == asked.function.name]
        if not tools:
            raise RequestError(400, "tool_choice names none of the tools", param="tool_choice")
    if asked == "auto" and (call_format is None or not options.enable_auto_tool_choice):
        raise RequestError(
            400,
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
            param="tool_choice",
        )
    call_format = call_format or PLAIN_LIST
    specials = tokenizer.special_tokens
    form = replace(
        form,
        call_format=call_format,
        tool_names=frozenset(tool.name for tool in tools),
        is_named=is_named,
        is_parallel=request.parallel_tool_calls and not is_named,
        shows_special=call_format.opening in specials,
    )
    is_free = asked == "auto" and form.grammar is None and not any(t.is_strict for t in tools)
    if is_free:
        return form
    grammar = tool_call_grammar(
        call_format,
        tools if asked != "auto" else [_loosened(tool) for tool in tools],
        specials,
        is_many=form.is_parallel,
        alternative=(form.grammar or "text") if asked == "auto" else None,
    )
    return replace(form, grammar=grammar, grammar_param="tools")


def _loosened(tool: Tool) -> Tool:
    """Only who asks for strictness need have a schema that can be kept to."""
    return tool if tool.is_strict else replace(tool, parameters={})


def _call_format(tokenizer: Tokenizer, options: ServeOptions) -> ToolFormat | None:
    if options.tool_call_parser == "mistral" and MISTRAL_11_ARGS_TAG in tokenizer.special_tokens:
        return MISTRAL_11
    return TOOL_FORMATS[options.tool_call_parser] if options.tool_call_parser else None


def _with_reasoning(
    form: AnswerForm,
    request: ChatCompletionRequest,
    prompt: Sequence[int],
    tokenizer: Tokenizer,
    options: ServeOptions,
) -> AnswerForm:
    if options.reasoning_parser is None:
        return form
    is_thinking = _is_thinking(request, prompt, tokenizer, options.reasoning_parser)
    if is_thinking is None:
        return form
    specials = tokenizer.special_tokens
    if form.grammar is not None:
        opening = None if is_thinking else to_lark(THINK_START, specials)
        grammar = after_reasoning(form.grammar, opening, to_lark(THINK_END, specials))
        form = replace(form, grammar=grammar)
    return replace(
        form,
        is_thinking=is_thinking,
        shows_reasoning=request.include_reasoning,
        shows_special=form.shows_special or THINK_END in specials,
    )


def _is_thinking(
    request: ChatCompletionRequest, prompt: Sequence[int], tokenizer: Tokenizer, parser: str
) -> bool | None:
    """Whether the answer begins within reasoning; None: it has no reasoning."""
    told = template_variables(request, tokenizer)
    if told.get("enable_thinking") is False or told.get("thinking") is False:
        return None
    begun = request.messages[-1].text if request.continue_final_message else ""
    if begun.strip():
        return True if begun.rfind(THINK_START) > begun.rfind(THINK_END) else None
    tail = tokenizer.decode(prompt[-PROMPT_TAIL_TOKENS:], skip_special_tokens=False).rstrip()
    if tail.endswith(THINK_END):
        return None
    return tail.endswith(THINK_START) or REASONS_UNTOLD[parser]
