"""The tiny model of the server's tests, its tokenizer, and a compiler of grammars."""

import importlib.util
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock_engine.models.config import ModelConfig
from penstock_engine.structured.compiler import GrammarCompiler
from penstock_engine.tokens import Tokenizer

_path = Path(__file__).parents[1] / "engine_server" / "conftest.py"
_spec = importlib.util.spec_from_file_location("engine_server_conftest", _path)
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)

model_dir = _module.model_dir
one_thread = _module.one_thread
launch = _module.launch


@pytest.fixture(scope="session")
def tokenizer(model_dir: Path) -> Tokenizer:
    return Tokenizer(model_dir)


@pytest.fixture
async def compiler(model_dir: Path, tokenizer: Tokenizer) -> AsyncIterator[GrammarCompiler]:
    config = ModelConfig.load(model_dir)
    compiler = GrammarCompiler(tokenizer.to_json(), config.vocab_size, config.eos_token_ids)
    yield compiler
    await compiler.close()
