"""The tiny model of the server's tests, its tokenizer, and compilers of grammars."""

import importlib.util
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock_engine.models.config import ModelConfig
from penstock_engine.structured.compiler import GrammarCompiler
from penstock_engine.structured.constraint import Compiled, GrammarConstraint
from penstock_engine.structured.grammar import Grammar
from penstock_engine.structured.limits import make_matcher, make_tokenizer
from penstock_engine.structured.worker import answer
from penstock_engine.tokens import Tokenizer

_path = Path(__file__).parents[1] / "engine_server" / "conftest.py"
_spec = importlib.util.spec_from_file_location("engine_server_conftest", _path)
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)

model_dir = _module.model_dir
launch = _module.launch


ENDS = frozenset({0, 2})  # of the tiny model: <|endoftext|> and <|im_end|>


class Compile:
    """Without a process."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.vocab_size = (tokenizer.vocab_size // 64 + 1) * 64  # always some columns to spare
        self.tokenizer = tokenizer
        self._spelt = make_tokenizer(tokenizer.to_json(), self.vocab_size, ENDS)

    def __call__(self, grammar: Grammar) -> GrammarConstraint:
        parts = [{"name": p.name, "kind": p.kind, "text": p.text} for p in grammar.parts]
        job = {"start": grammar.start, "rules": grammar.rules, "parts": parts}
        reply = answer(job, self._spelt)
        return Compiled(make_matcher(self._spelt, reply["text"]), ENDS).constraint()

    def allowed(self, constraint: GrammarConstraint) -> set[int]:
        bits = bytearray(-(-self.vocab_size // 32) * 4)
        constraint.fill(memoryview(bits))
        return {i for i in range(self.vocab_size) if bits[i >> 3] >> (i & 7) & 1}

    def write(self, grammar: Grammar, seed: int, max_tokens: int = 600) -> str | None:
        """A text of the grammar, drawn evenly; None when it does not end."""
        draw = random.Random(seed)
        constraint = self(grammar)
        written: list[int] = []
        while not constraint.is_finished and len(written) < max_tokens:
            token = draw.choice(sorted(self.allowed(constraint)))
            assert constraint.accept(token)
            if token in ENDS:
                break
            written.append(token)
        else:
            if not constraint.is_finished:
                return None
        return self.tokenizer.decode(written, skip_special_tokens=False)

    def takes(self, grammar: Grammar, text: str) -> bool:
        """Whether a whole text fits."""
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
def compile_now(tokenizer: Tokenizer) -> Compile:
    return Compile(tokenizer)
