"""Small models of every family, and one thread for each rank, so that tests leave the machine to others."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
import transformers
from greedy_equality import FAMILIES


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()


@pytest.fixture(scope="session")
def family_dir(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a random model, by the family's name in benchmarks/greedy_equality.py."""

    @cache
    def make(name: str) -> Path:
        directory = tmp_path_factory.mktemp(name)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            FAMILIES[name].make(directory)
        return directory

    return make
