"""Small models of every family."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest
import torch
from tests.support.engine.families import FAMILIES

from penstock_engine.lora.checkpoint import Adapter, Factors

Targets = Mapping[str, tuple[int, int]]


@pytest.fixture(scope="session")
def make_adapter() -> Callable[[Targets], Adapter]:
    """A random adapter of rank 3 that changes every target."""

    def make(targets: Targets) -> Adapter:
        generator = torch.Generator().manual_seed(0)

        def factor(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=generator) * 0.1

        pairs = {name: Factors(factor(3, n), factor(m, 3)) for name, (m, n) in targets.items()}
        return Adapter(3, pairs)

    return make


@pytest.fixture(scope="session")
def family_dir(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a random model, by the family's name in benchmarks/engine/greedy_equality.py."""

    @cache
    def make(name: str) -> Path:
        directory = tmp_path_factory.mktemp(name)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            FAMILIES[name].make(directory)
        return directory

    return make
