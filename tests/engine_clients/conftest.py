"""Fixtures: an engine with an API key and all features, for real client libraries."""

from dataclasses import dataclass
from typing import Any

import pytest
from tests.engine_server import launched_engine

model_dir = launched_engine.model_dir
launch = launched_engine.launch


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
