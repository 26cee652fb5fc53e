"""Fixtures: an engine with an API key and all features, for real client libraries."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_path = Path(__file__).parents[1] / "engine_server" / "conftest.py"
_spec = importlib.util.spec_from_file_location("engine_server_conftest", _path)
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)

model_dir = _module.model_dir
launch = _module.launch


@dataclass(frozen=True)
class Engine:
    """url: without a path."""

    url: str
    key: str


@pytest.fixture(scope="session")
def engine(launch: Any) -> Engine:
    client, _ = launch(
        "--max-model-len", "1024", "--max-num-seqs", "8", "--api-key", "s3cret",
        "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
        "--scheduling-policy", "priority",
    )  # fmt: skip
    return Engine(str(client.base_url).rstrip("/"), "s3cret")
