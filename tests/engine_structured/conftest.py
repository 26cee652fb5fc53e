"""Fixtures: the tiny model of the server tests, grammar compilers, and running engines."""

import json
import random
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.engine_server import launched_engine
from tests.engine_structured.streamed_calls import append_call

from penstock_engine.models.config import ModelConfig
from penstock_engine.structured.compiler import GrammarCompiler
from penstock_engine.structured.constraint import CompiledGrammar, GrammarConstraint
from penstock_engine.structured.grammar import Grammar
from penstock_engine.structured.limits import make_matcher, make_tokenizer
from penstock_engine.structured.number_limit import NumberLimit
from penstock_engine.structured.worker import check_grammar
from penstock_engine.text.tokens import Tokenizer

model_dir = launched_engine.model_dir
launch = launched_engine.launch


ENDS = frozenset({0, 2})  # end-of-sequence tokens of the tiny model: <|endoftext|>, <|im_end|>


class DirectCompiler:
    """Compiles grammars in this process, and generates and checks texts with them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.vocab_size = (tokenizer.vocab_size // 64 + 1) * 64  # with padding, as real models have
        self.tokenizer = tokenizer
        self._grammar_tokenizer = make_tokenizer(tokenizer.to_json(), self.vocab_size, ENDS)
        self._number_limit = NumberLimit(self._grammar_tokenizer)

    def __call__(self, grammar: Grammar) -> GrammarConstraint:
        return self.compile(grammar).new_constraint()

    def compile(self, grammar: Grammar) -> CompiledGrammar:
        parts = [{"name": p.name, "kind": p.kind, "text": p.text} for p in grammar.parts]
        job = {"start": grammar.start, "rules": grammar.rules, "parts": parts}
        reply = check_grammar(job, self._grammar_tokenizer)
        make = partial(make_matcher, self._grammar_tokenizer, reply["text"])
        number_limit = self._number_limit if grammar.is_json else None
        return CompiledGrammar(make(), ENDS, make, number_limit)

    def allowed(self, constraint: GrammarConstraint) -> set[int]:
        """Returns the ids of the tokens that the constraint allows next."""
        bits = bytearray(-(-self.vocab_size // 32) * 4)
        constraint.fill(memoryview(bits))
        return {i for i in range(self.vocab_size) if bits[i >> 3] >> (i & 7) & 1}

    def write(self, grammar: Grammar, seed: int, max_tokens: int = 600) -> str | None:
        """Generates a random text of the grammar; None if it has not ended after `max_tokens`."""
        rng = random.Random(seed)
        constraint = self(grammar)
        written: list[int] = []
        while not constraint.is_finished and len(written) < max_tokens:
            token = rng.choice(sorted(self.allowed(constraint)))
            assert constraint.accept(token)
            if token in ENDS:
                break
            written.append(token)
        else:
            if not constraint.is_finished:
                return None
        return self.tokenizer.decode(written, skip_special_tokens=False)

    def matches(self, grammar: Grammar, text: str) -> bool:
        """Whether the grammar matches a complete text."""
        constraint = self(grammar)
        tokens = self.tokenizer.encode(text, add_special_tokens=False)
        if not all(constraint.accept(token) for token in tokens):
            return False
        return constraint.is_finished or bool(self.allowed(constraint) & ENDS)


@pytest.fixture(scope="session")
def tokenizer(model_dir: Path) -> Tokenizer:
    return Tokenizer(model_dir)


@pytest.fixture
async def compiler(model_dir: Path, tokenizer: Tokenizer) -> AsyncIterator[GrammarCompiler]:
    config = ModelConfig.load(model_dir)
    compiler = GrammarCompiler(tokenizer.to_json(), config.vocab_size, config.eos_token_ids)
    yield compiler
    await compiler.close()


@pytest.fixture(scope="session")
def compile_now(tokenizer: Tokenizer) -> DirectCompiler:
    return DirectCompiler(tokenizer)


CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Say something."}],
    "temperature": 1.0,
    "seed": 3,
    "max_tokens": 400,
}
Choice = dict[str, Any]


class ChatEngine:
    """Sends chat requests to a running engine, with default values for fields that are not given."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    def post(self, body: dict[str, Any]) -> httpx.Response:
        return self.client.post("/v1/chat/completions", json=CHAT | body)

    def ask(self, **body: Any) -> Choice:
        """Returns the first choice of the answer."""
        answer = self.post(body)
        assert answer.status_code == 200, answer.text
        choice: Choice = answer.json()["choices"][0]
        return choice

    def stream(self, **body: Any) -> Choice:
        """Returns the choice that the deltas of a stream add up to."""
        content: str | None = None
        message: dict[str, Any] = {"role": "assistant", "reasoning": None}
        reason = None
        body = CHAT | body | {"stream": True}
        with self.client.stream("POST", "/v1/chat/completions", json=body) as lines:
            assert lines.status_code == 200, lines.read()
            for line in lines.iter_lines():
                if not line or line == "data: [DONE]":
                    continue
                (choice,) = json.loads(line.removeprefix("data: "))["choices"]
                delta = choice["delta"]
                content = (content or "") + delta.get("content", "")
                if "reasoning" in delta:
                    message["reasoning"] = (message["reasoning"] or "") + delta["reasoning"]
                for call in delta.get("tool_calls", ()):
                    append_call(message.setdefault("tool_calls", []), call)
                reason = choice["finish_reason"] or reason
        is_null = not content and bool(message["reasoning"] or "tool_calls" in message)
        message["content"] = None if is_null else content
        return {"message": message, "finish_reason": reason}

    def assert_stream_equals(self, choice: Choice, **body: Any) -> None:
        """Asserts that the stream of a request adds up to the choice, except for ids of calls."""
        assert self.without_call_ids(self.stream(**body)) == self.without_call_ids(choice)

    @staticmethod
    def without_call_ids(choice: Choice) -> Choice:
        message = choice["message"]
        calls = [call["function"] for call in message.get("tool_calls", ())]
        return message | {"tool_calls": calls, "finish_reason": choice["finish_reason"]}


@pytest.fixture(scope="session")
def engine(launch: Any) -> ChatEngine:
    """An engine with a tool-call parser and a reasoning parser."""
    client, _ = launch(
        "--max-model-len", "1024", "--max-num-seqs", "8", "--enable-auto-tool-choice",
        "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3",
    )  # fmt: skip
    return ChatEngine(client)


@pytest.fixture(scope="session")
def plain_engine(launch: Any) -> ChatEngine:
    """An engine without parsers."""
    client, _ = launch("--max-model-len", "1024", "--max-num-seqs", "8")
    return ChatEngine(client)
