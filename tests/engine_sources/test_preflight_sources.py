"""`penstock-engine preflight --headers`: its verdict, its exit code and its termination message."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.engine_sources.test_headers import NAME, files_of
from tests.support.sources.certificates import loopback_certificate
from tests.support.sources.faults import Fault
from tests.support.sources.file_server import FileServer
from tests.support.sources.hub_server import HubServer
from tests.support.sources.model_files import model_files
from tests.support.sources.registry import tar_of

from penstock_engine.files.termination_text import MAX_BYTES, termination_text

ENGINE = Path(sys.executable).parent / "penstock-engine"
MIB = 1 << 20


def check(
    hub: HubServer, *args: str | Path, scope: str = "model", **env: str
) -> tuple[int, dict[str, Any]]:
    """Exit code and verdict."""
    done = subprocess.run(
        [ENGINE, "preflight", *args, "--scope", scope, "--memory-limit-bytes", str(4096 * MIB)],
        env={**os.environ, "HF_ENDPOINT": hub.url, **env}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout)


def source_of(hub: HubServer, name: str, total_bytes: int) -> dict[str, Any]:
    commit = hub.repositories[name].revisions["main"]
    resolved = f"hf://{name}@{commit}"
    return {"uri": f"hf://{name}", "resolved_uri": resolved, "total_bytes": total_bytes}


def test_the_verdict_has_the_sources_in_their_order(
    hub: HubServer, tiny_dir: Path, tmp_path: Path
) -> None:
    files = files_of(tiny_dir)
    hub.add(NAME, files, token="hf_right")
    other = model_files()
    hub.add("org/other", other)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/HF_TOKEN").write_text("hf_right\n")
    log = tmp_path / "log"
    flags = (
        "--headers", f"{tmp_path}/o=hf://org/other", "--headers", f"{tmp_path}/m=hf://{NAME}",
        "--credentials", tmp_path / "secret", "--termination-log", log,
    )  # fmt: skip
    code, verdict = check(hub, tmp_path / "m", *flags)
    assert (code, verdict["ok"], verdict["architecture"]) == (0, True, "Qwen3ForCausalLM")
    sizes = [sum(path.stat().st_size for path in (tmp_path / f).iterdir()) for f in "om"]
    assert verdict["sources"] == [
        source_of(hub, "org/other", sizes[0]), source_of(hub, NAME, sizes[1]),
    ]  # fmt: skip
    assert json.loads(log.read_text()) == verdict


def test_a_model_that_does_not_fit_is_refused_with_its_sources(
    hub: HubServer, tiny_dir: Path, tmp_path: Path
) -> None:
    hub.add(NAME, files_of(tiny_dir))
    flag = ("--headers", f"{tmp_path}/m=hf://{NAME}")
    code, verdict = check(hub, tmp_path / "m", *flag, "--max-model-len", "1000000")
    assert (code, verdict["ok"]) == (1, False)
    assert verdict["reason"]
    assert [each["uri"] for each in verdict["sources"]] == [f"hf://{NAME}"]
    assert hub.cdn.sent_bytes < len((tiny_dir / "model.safetensors").read_bytes())


@pytest.mark.parametrize("scope", ["files", "folder"])
def test_a_model_for_another_program_is_only_found(
    hub: HubServer, tmp_path: Path, scope: str
) -> None:
    hub.add(NAME, model_files())
    flag = ("--headers", f"{tmp_path}/m=hf://{NAME}")
    code, verdict = check(hub, tmp_path / "m", *flag, scope=scope)
    assert (code, verdict["ok"], verdict["reason"]) == (0, True, "Found")
    assert len(verdict["sources"]) == 1


@pytest.mark.parametrize(
    ("fault", "code", "reason"),
    [
        (Fault("status", "models/org/name", status=404), 1, "NotFound"),
        (
            Fault("status", "models/org/name", status=429, headers={"Retry-After": "999"}),
            75,
            "RateLimited",
        ),
    ],
)
def test_a_source_that_fails_is_the_verdict(
    hub: HubServer, tmp_path: Path, fault: Fault, code: int, reason: str
) -> None:
    hub.add("org/other", model_files())
    hub.faults.add(fault)
    flags = ("--headers", f"{tmp_path}/o=hf://org/other", "--headers", f"{tmp_path}/m=hf://{NAME}")
    exit_code, verdict = check(hub, tmp_path / "m", *flags, "--deadline-seconds", "30")
    assert verdict.pop("message")
    assert (exit_code, verdict) == (
        code,
        {
            "ok": False, "reason": reason, "remedies": {}, "is_retryable": code == 75, "uri": f"hf://{NAME}",
        },
    )  # fmt: skip


def test_nothing_is_asked_offline(hub: HubServer, tmp_path: Path) -> None:
    """The cache, which the check does not have, may have the model."""
    hub.add(NAME, model_files())
    flags = (tmp_path / "m", "--headers", f"{tmp_path}/m=hf://{NAME}")
    code, verdict = check(hub, *flags, HF_HUB_OFFLINE="1")
    assert (code, verdict["ok"], verdict["reason"]) == (0, True, "Found")
    assert "HF_HUB_OFFLINE" in verdict["message"]
    assert "sources" not in verdict
    assert hub.requests == []
    code, verdict = check(hub, flags[0], "--headers", f"{tmp_path}/m=hf://one", HF_HUB_OFFLINE="1")
    assert (code, verdict["reason"]) == (1, "BadSource")


def test_an_archive_is_found_and_not_read(hub: HubServer, tmp_path: Path) -> None:
    context, authority = loopback_certificate(tmp_path)
    packed = tar_of(model_files())
    with FileServer(tls=context) as web:
        web.contents["/m.tar.gz"] = packed
        uri = f"{web.url}/m.tar.gz#sha256={hashlib.sha256(packed).hexdigest()}"
        code, verdict = check(
            hub, tmp_path / "m", "--headers", f"{tmp_path}/m={uri}", SSL_CERT_FILE=str(authority)
        )
        assert web.sent_bytes < 1000
    assert (code, verdict) == (
        0,
        {
            "ok": True, "reason": "Found",
            "message": "the model is in an archive: it is checked when it is fetched",
            "sources": [{"uri": uri, "resolved_uri": uri, "total_bytes": len(packed), "is_archive": True}],
        },
    )  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--headers", "hf://org/name"), "BadArguments"),
        (("--credentials", "/none"), "BadArguments"),
        (("--headers", "/m=hf://a/b") * 9, "BadArguments"),
        (("--headers", "/m=hf://a/b", "--credentials", "/none"), "BadCredentials"),
        (("--headers", "/m=ftp://a/b"), "BadSource"),
    ],
)
def test_flags_that_are_wrong_are_a_verdict(
    hub: HubServer, flags: tuple[str, ...], reason: str
) -> None:
    code, verdict = check(hub, "/m", *flags)
    assert (code, verdict["ok"], verdict["reason"]) == (1, False, reason)


def test_long_texts_are_cut_and_the_json_stays_whole() -> None:
    sources = [{"uri": f"s3://{n}/{'k' * 300}", "total_bytes": n} for n in range(3)]
    report = {"ok": False, "message": "é" * 9000, "problem": "b" * 9000, "sources": sources}
    text = termination_text(report)
    assert len(text.encode()) <= MAX_BYTES
    cut = json.loads(text)
    assert cut["sources"] == sources
    assert cut["message"].rstrip("…") == "é" * cut["message"].count("é") != ""
    assert cut["problem"].endswith("b…")
    assert termination_text({"ok": True}) == '{"ok": true}'
    long_uris = {"sources": [{"uri": "u" * 2000, "resolved_uri": "r" * 2000} for _ in range(8)]}
    assert len(json.loads(termination_text(long_uris))["sources"]) == 8
