"""How a fetch refuses each broken source of the tests."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from tests.support.sources.broken_sources import NAME, SOURCES, Broken
from tests.support.sources.hub_server import HubServer

from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.fetch import fetch_model
from penstock_engine.sources.progress import Progress


def refusals(folder: Path) -> Iterator[tuple[str, str, FetchError | None]]:
    """Name, expected reason and error of each broken source. folder: empty. None: it was fetched."""
    for number, (name, broken) in enumerate(SOURCES.items()):
        with HubServer() as hub, _settings(hub, broken, folder):
            hub.add(NAME, broken.files(), **broken.repository)
            hub.faults.add(*(make(hub) for make in broken.faults))
            target = folder / str(number)
            progress = Progress(lambda _: None)
            try:
                fetch_model(
                    broken.uri, target, target.with_suffix(".cache"), broken.limits, progress
                )
            except FetchError as error:
                yield name, broken.reason, error
            else:
                yield name, broken.reason, None


@contextmanager
def _settings(hub: HubServer, broken: Broken, folder: Path) -> Iterator[None]:
    """The environment in which a source is read: no token but its own."""
    settings = {"HF_ENDPOINT": broken.endpoint or hub.url, "HF_TOKEN": broken.token}
    token_file = patch("huggingface_hub.constants.HF_TOKEN_PATH", str(folder / "no-token"))
    with patch.dict(os.environ, settings), token_file:
        os.environ.pop("HF_HUB_OFFLINE", None)
        yield
