"""Fixtures: an API server with answers that a test sets."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.local.api_server import ApiServer

from penstock.cli.rollout import status as rollout_status


@pytest.fixture
def start() -> Iterator[Callable[[], ApiServer]]:
    started: list[tuple[ApiServer, threading.Thread]] = []

    def start() -> ApiServer:
        api = ApiServer()
        thread = threading.Thread(target=api.server.serve_forever, args=(0.05,))
        thread.start()
        started.append((api, thread))
        return api

    yield start
    for api, thread in started:
        api.server.shutdown()
        api.server.server_close()
        thread.join()


@pytest.fixture
def api(
    start: Callable[[], ApiServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ApiServer:
    """The server of a context with the namespace `team`."""
    made = start()
    path = made.kubeconfig(tmp_path / "kubeconfig", {"namespace": "team"})
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setattr(rollout_status, "POLL_S", 0.01)
    return made
