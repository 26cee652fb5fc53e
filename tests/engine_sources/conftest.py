"""Fixtures: a server of the hub, and a folder to fetch into."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.engine.tiny_model import make_tiny_model
from tests.support.sources.hub_server import HubServer
from tests.support.sources.quick_limits import QUICK

from penstock_engine.sources.fetch import FetchResult, fetch_model
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.progress import Progress

Fetch = Callable[..., FetchResult]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    """The hub, as HF_ENDPOINT names it; no token."""
    with HubServer() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))
        yield server


@pytest.fixture(scope="session")
def tiny_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that the engine serves, of some MB."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    make_tiny_model(folder)
    return folder


@pytest.fixture
def fetch(tmp_path: Path) -> Fetch:
    """Fetches a model into a folder of the test, with a cache beside it."""

    def run(
        uri: str, into: str = "model", cache: str | None = "cache", limits: FetchLimits = QUICK
    ) -> FetchResult:
        store = None if cache is None else tmp_path / cache
        return fetch_model(uri, tmp_path / into, store, limits, Progress(lambda _: None))

    return run
