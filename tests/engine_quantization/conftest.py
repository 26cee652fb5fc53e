"""Fixtures: small random models of two families."""

from pathlib import Path

import pytest
import torch
from tests.support.engine.families import FAMILIES


@pytest.fixture(scope="session")
def qwen3_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model("qwen3", tmp_path_factory)


@pytest.fixture(scope="session")
def mixtral_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model("mixtral", tmp_path_factory)


def make_model(family: str, factory: pytest.TempPathFactory) -> Path:
    directory = factory.mktemp(family)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        FAMILIES[family].make(directory)
    return directory
