"""Fixtures: the tiny model of the server tests, its tokenizer, and grammar compilers."""

import importlib.util
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock_engine.models.config import ModelConfig
from penstock_engine.structured.compiler import GrammarCompiler
from penstock_engine.structured.constraint import CompiledGrammar, GrammarConstraint
from penstock_engine.structured.grammar import Grammar
from penstock_engine.structured.limits import make_matcher, make_tokenizer
from penstock_engine.structured.worker import check_grammar
from penstock_engine.tokens import Tokenizer

_path = Path(__file__).parents[1] / "engine_server" / "conftest.py"
_spec = importlib.util.spec_from_file_location("engine_server_conftest", _path)
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)

model_dir = _module.model_dir
launch = _module.launch


ENDS = frozenset({0, 2})  # end-of-sequence tokens of the tiny model: <|endoftext|>, <|im_end|>


class DirectCompiler:
    """Compiles grammars in this process, and generates and checks texts with them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.vocab_size = (tokenizer.vocab_size // 64 + 1) * 64  # with padding, as real models have
        self.tokenizer = tokenizer
        self._grammar_tokenizer = make_tokenizer(tokenizer.to_json(), self.vocab_size, ENDS)

    def __call__(self, grammar: Grammar) -> GrammarConstraint:
        parts = [{"name": p.name, "kind": p.kind, "text": p.text} for p in grammar.parts]
        job = {"start": grammar.start, "rules": grammar.rules, "parts": parts}
        reply = check_grammar(job, self._grammar_tokenizer)
        matcher = make_matcher(self._grammar_tokenizer, reply["text"])
        return CompiledGrammar(matcher, ENDS).new_constraint()

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
