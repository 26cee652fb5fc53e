"""Metrics of a fetch: their values while it runs, and clients that may not disturb it."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.sources.hub_server import HubServer
from tests.support.sources.model_files import fetched_names, model_files
from tests.support.sources.quick_limits import QUICK

from penstock_engine.contract.feature_metric_specs import FETCH_METRICS
from penstock_engine.sources.metrics_server import MAX_CLIENTS, serving_metrics
from penstock_engine.sources.progress import Progress
from penstock_engine.sources.report import run_fetch

NAMES = {spec.name for spec in FETCH_METRICS}


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def progress(port: int) -> Iterator[Progress]:
    """A progress whose metrics are served."""
    lines: list[str] = []
    progress = Progress(lambda _: None)
    with serving_metrics(progress, "127.0.0.1", port, lines.append):
        assert lines == []
        yield progress


def scrape(port: int, accept: str = "") -> dict[str, float]:
    answer = httpx2.get(f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept}, timeout=10)
    answer.raise_for_status()
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text"])
def test_the_metrics_are_those_of_the_contract(progress: Progress, port: int, accept: str) -> None:
    assert scrape(port, accept) == dict.fromkeys(NAMES, 0)
    with progress.downloading(1000, 100):
        progress.add(300)
        progress.add(200)
        progress.undo(50)
        values = scrape(port, accept)
    rate = values.pop("penstock:model_fetch_bytes_per_second")
    assert values == {
        "penstock:model_fetch_bytes": 550,
        "penstock:model_fetch_total_bytes": 1000,
        "penstock:model_fetch_downloaded_bytes_total": 500,
    }
    assert rate > 0


def test_other_paths_are_not_found(progress: Progress, port: int) -> None:
    answer = httpx2.get(f"http://127.0.0.1:{port}/")
    assert (answer.status_code, "/metrics" in answer.text) == (404, True)


def test_they_follow_a_fetch(hub: HubServer, tmp_path: Path, port: int) -> None:
    files = model_files(3_000_000)
    hub.add("org/name", files)
    hub.cdn.delay_s = 0.5  # until it was seen
    total_bytes = sum(len(files[name]) for name in fetched_names(files))
    reports = []
    address = ("127.0.0.1", port)
    thread = threading.Thread(
        target=lambda: reports.append(
            run_fetch("hf://org/name", tmp_path / "m", None, QUICK, address=address)
        )
    )
    thread.start()
    seen = []
    while thread.is_alive():
        try:
            seen.append(scrape(port))
        except httpx2.TransportError:  # before and after the fetch
            time.sleep(0.01)
        if seen and seen[-1]["penstock:model_fetch_bytes"]:
            hub.cdn.delay_s = 0.0
    assert reports[0]["ok"], reports
    within = [each for each in seen if each["penstock:model_fetch_bytes"]]
    assert {each["penstock:model_fetch_total_bytes"] for each in within} == {total_bytes}
    done = [each["penstock:model_fetch_bytes"] for each in within]
    assert done == sorted(done)
    assert done[-1] <= total_bytes
    with pytest.raises(httpx2.TransportError):
        scrape(port)


def test_a_port_that_is_taken_does_not_fail_the_fetch(
    hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.add("org/name", model_files())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = ("127.0.0.1", taken.getsockname()[1])
        report = run_fetch("hf://org/name", tmp_path / "m", None, QUICK, address=address)
    assert report["ok"]
    assert "(Address already in use): set another --port" in capsys.readouterr().err


def test_clients_that_send_nothing_cost_a_few_threads_at_most(
    progress: Progress, port: int
) -> None:
    before = threading.active_count()
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(5 * MAX_CLIENTS)]
    refused = clients[-1]
    refused.settimeout(10)
    assert refused.recv(1) == b""  # those before it have their threads by now
    assert threading.active_count() - before <= MAX_CLIENTS
    for client in clients:
        client.close()
    while threading.active_count() > before:
        time.sleep(0.01)
    assert set(scrape(port)) == NAMES
