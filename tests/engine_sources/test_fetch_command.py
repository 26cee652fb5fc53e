"""The command: its last line, its exit codes, several at the same time, and one that is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.sources.faults import Fault
from tests.support.sources.hub_server import HubServer
from tests.support.sources.model_files import fetched_names, model_files

from penstock_engine.sources.storage.model_folder import MARKER_NAME

NUM_KILLS = 20
ENGINE = Path(sys.executable).parent / "penstock-engine"


def start(hub: HubServer, *args: str | Path, **env: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [ENGINE, "fetch", *args],
        env={**os.environ, "HF_ENDPOINT": hub.url, **env},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def start_quickly(hub: HubServer, model: Path, cache: Path) -> "subprocess.Popen[str]":
    """Start the fetch of the command without importing the rest of the engine's command line."""
    program = (
        "import sys; from pathlib import Path; from penstock_engine.sources.report import run_fetch; "
        "from penstock_engine.sources.limits import FetchLimits; "
        "run_fetch('hf://org/name', Path(sys.argv[1]), Path(sys.argv[2]), FetchLimits())"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program, model, cache], env={**os.environ, "HF_ENDPOINT": hub.url},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def end(process: "subprocess.Popen[str]") -> tuple[int, dict[str, Any], str]:
    """Exit code, report, and lines of progress of a command."""
    out, progress = process.communicate(timeout=120)
    lines = out.splitlines()
    return process.returncode, json.loads(lines[-1]) if lines else {}, progress


def test_a_fetched_model_is_reported(hub: HubServer, tmp_path: Path) -> None:
    hub.add("org/name", model_files())
    log = tmp_path / "termination-log"
    code, report, progress = end(
        start(hub, "hf://org/name", "--into", tmp_path / "model", "--termination-log", log)
    )
    assert code == 0, progress
    commit = hub.repositories["org/name"].revisions["main"]
    total_bytes = sum(
        len(data) for name, data in model_files().items() if name in fetched_names(model_files())
    )
    assert report.pop("seconds") > 0
    assert report == {
        "ok": True, "resolved_uri": f"hf://org/name@{commit}", "total_bytes": total_bytes,
        "downloaded_bytes": total_bytes, "num_files": 3, "num_cache_hits": 0, "path": str(tmp_path / "model"),
    }  # fmt: skip
    assert json.loads(log.read_text())["resolved_uri"] == f"hf://org/name@{commit}"
    assert progress.startswith(f"Fetching hf://org/name@{commit}: 3 files")


@pytest.mark.parametrize(
    ("fault", "code", "reason"),
    [
        (Fault("status", "/api/models/org", status=404), 1, "NotFound"),
        (Fault("status", "/api/models/org", status=429, headers={"Retry-After": "99"}), 75, "RateLimited"),
    ],
)  # fmt: skip
def test_the_exit_code_says_whether_to_try_again(
    hub: HubServer, tmp_path: Path, fault: Fault, code: int, reason: str
) -> None:
    hub.add("org/name", model_files())
    hub.faults.add(fault)
    process = start(hub, "hf://org/name", "--into", tmp_path / "model", "--deadline-seconds", "20")
    exit_code, report, _ = end(process)
    assert (exit_code, report["ok"], report["reason"]) == (code, False, reason)
    assert report["is_retryable"] == (code == 75)
    assert report["message"]


def test_a_fetch_removes_other_models_beside_it_but_those_to_keep(
    hub: HubServer, tmp_path: Path
) -> None:
    hub.add("org/name", model_files())
    adapter = tmp_path / "adapters" / "sql"
    for name in ("old", "kept", "unmarked"):
        (adapter / name).mkdir(parents=True)
        (adapter / name / "weights").write_text("")
        if name != "unmarked":
            (adapter / name / MARKER_NAME).write_text("{}")
    (adapter / "link").symlink_to(adapter / "kept")
    (adapter / "file").write_text("")
    cache = ("--cache", tmp_path / "cache", "--keep", "kept", "--keep", "new")
    code, _, progress = end(start(hub, "hf://org/absent", "--into", adapter / "new", *cache))
    assert (code, (adapter / "old").exists()) == (1, True), "a failed fetch removes nothing"
    code, _, progress = end(start(hub, "hf://org/name", "--into", adapter / "new", *cache))
    assert code == 0, progress
    names = {each.name for each in adapter.iterdir()}
    assert names == {"new", "kept", "unmarked", "link", "file"}
    assert (adapter / "new" / "model.safetensors").exists()


@pytest.mark.slow
def test_several_fetches_of_one_cache_download_once(hub: HubServer, tmp_path: Path) -> None:
    files = model_files(2_000_000)
    hub.add("org/name", files)
    processes = [
        start(hub, "hf://org/name", "--into", tmp_path / f"m{n}", "--cache", tmp_path / "cache")
        for n in range(3)
    ]
    reports = [report for _, report, _ in map(end, processes)]
    total_bytes = reports[0]["total_bytes"]
    assert sum(report["downloaded_bytes"] for report in reports) == total_bytes
    for number in range(3):
        weights = tmp_path / f"m{number}/model.safetensors"
        assert weights.read_bytes() == files["model.safetensors"]


@pytest.mark.slow
def test_a_fetch_that_is_killed_resumes_and_no_half_model_is_whole(
    hub: HubServer, tmp_path: Path
) -> None:
    """Killed at twenty moments of its work, from the first request to the last link."""
    files = model_files(40 << 20)  # three parts
    hub.add("org/name", files)
    wanted = fetched_names(files)
    cache, model = tmp_path / "cache", tmp_path / "model"
    hub.cdn.delay_s = 0.001  # a block of 64 KiB: less than a second for all
    num_killed = 0
    for moment in range(NUM_KILLS):
        num_requests = len(hub.requests) + len(hub.cdn.requests)
        process = start_quickly(hub, model, cache)
        while process.poll() is None and len(hub.requests) + len(hub.cdn.requests) == num_requests:
            time.sleep(0.005)
        time.sleep(moment * 0.06)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        num_killed += process.returncode == -signal.SIGKILL
        check_whole_or_not_marked(model, files, wanted)
        for folder in cache.glob("models/*/*"):
            check_whole_or_not_marked(folder, files, wanted)
        if (model / MARKER_NAME).exists():  # later moments are for a new fetch
            for marker in [*cache.glob("models/*/*/.penstock*"), model / MARKER_NAME]:
                marker.unlink()
            for blob in cache.glob("blobs/sha256/*"):
                blob.unlink()
    assert num_killed >= NUM_KILLS // 2
    hub.cdn.requests.clear()
    code, report, progress = end(start(hub, "hf://org/name", "--into", model, "--cache", cache))
    assert code == 0, progress
    assert (model / "model.safetensors").read_bytes() == files["model.safetensors"]
    assert report["downloaded_bytes"] <= report["total_bytes"]


def check_whole_or_not_marked(folder: Path, files: dict[str, bytes], wanted: set[str]) -> None:
    if (folder / MARKER_NAME).exists():
        assert {name: (folder / name).read_bytes() for name in wanted} == {
            name: files[name] for name in wanted
        }
