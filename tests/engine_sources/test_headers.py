"""Headers of sources: what a check of them says, and how little of the model is read for it."""

import hashlib
import random
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.engine.gguf_files import write_gguf
from tests.support.sources.broken_sources import SOURCES, Broken
from tests.support.sources.certificates import loopback_certificate
from tests.support.sources.faults import Fault
from tests.support.sources.file_server import FileServer
from tests.support.sources.hub_server import HubServer
from tests.support.sources.model_files import fetched_names, model_files, sharded_files
from tests.support.sources.quick_limits import QUICK

from penstock_engine.checkpoints.gguf.file import read_gguf
from penstock_engine.memory.preflight import preflight
from penstock_engine.options.config import EngineConfig
from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.headers import fetch_headers as module
from penstock_engine.sources.headers.fetch_headers import (
    FIRST_GGUF_BYTES,
    FIRST_SAFETENSORS_BYTES,
    GROWTH,
    fetch_headers,
)
from penstock_engine.sources.headers.gguf_header import has_whole_header

GIB = 1 << 30
NAME = "org/name"
# Sources that a check does not refuse: their faults are behind the headers, or in the volume and its cache.
NOT_OF_HEADERS = {
    "WrongDigest", "Truncated", "NoSpace", "CacheLimit", "TooSlow", "ServerError", "NoResponse",
    "RateLimited", "Forbidden", "ConnectionLost", "DeadlineExceeded", "WrongSize", "NotFetchable",
}  # fmt: skip


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def gguf_of(tiny_dir: Path, folder: Path) -> bytes:
    path = folder / "whole-F16.gguf"
    write_gguf(tiny_dir, path, "F16")
    return path.read_bytes()


def test_a_check_of_headers_is_that_of_the_model(
    hub: HubServer, tiny_dir: Path, tmp_path: Path
) -> None:
    files = files_of(tiny_dir)
    hub.add(NAME, files)
    found = fetch_headers(f"hf://{NAME}", tmp_path / "m", QUICK)
    assert found.resolved_uri == f"hf://{NAME}@{hub.repositories[NAME].revisions['main']}"
    assert found.total_bytes == sum(len(files[path.name]) for path in (tmp_path / "m").iterdir())
    for memory in (64 << 20, 4 * GIB):
        verdicts = [
            preflight(EngineConfig(model_dir=folder), memory_limit_bytes=memory)
            for folder in (tiny_dir, tmp_path / "m")
        ]
        assert verdicts[0] == verdicts[1]
        assert verdicts[0]["ok"] == (memory > GIB)
    weights = (tmp_path / "m/model.safetensors").stat()
    assert weights.st_size == len(files["model.safetensors"])
    assert weights.st_blocks * 512 <= FIRST_SAFETENSORS_BYTES
    texts = sum(len(data) for name, data in files.items() if name != "model.safetensors")
    assert hub.cdn.sent_bytes + hub.sent_bytes < texts + FIRST_SAFETENSORS_BYTES + 10_000
    assert len(files["model.safetensors"]) > 4 * FIRST_SAFETENSORS_BYTES


def test_a_check_of_a_gguf_header_is_that_of_the_file(
    hub: HubServer, tiny_dir: Path, tmp_path: Path
) -> None:
    data = gguf_of(tiny_dir, tmp_path)
    hub.add(NAME, {"Q.gguf": data, "README.md": b""})
    assert fetch_headers(f"hf://{NAME}/Q.gguf", tmp_path / "m", QUICK).total_bytes == len(data)
    verdicts = [
        preflight(EngineConfig(model_dir=path), memory_limit_bytes=4 * GIB)
        for path in (tmp_path / "whole-F16.gguf", tmp_path / "m")
    ]
    assert verdicts[0] == verdicts[1]
    assert verdicts[0]["ok"]
    assert hub.cdn.sent_bytes <= GROWTH * FIRST_GGUF_BYTES < len(data) / 2


def test_a_long_gguf_header_is_read_in_growing_ranges(
    hub: HubServer, tiny_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = gguf_of(tiny_dir, tmp_path)
    hub.add(NAME, {"Q.gguf": data})
    monkeypatch.setattr(module, "FIRST_GGUF_BYTES", 1000)
    fetch_headers(f"hf://{NAME}", tmp_path / "m", QUICK)
    whole, headers = read_gguf(tmp_path / "whole-F16.gguf"), read_gguf(tmp_path / "m/Q.gguf")
    assert dict(headers.metadata) == dict(whole.metadata)
    assert headers.tensors == whole.tensors
    ranges = [sent["Range"] for _, _, sent in hub.cdn.requests]
    assert ranges[:3] == ["bytes=0-999", "bytes=1000-3999", "bytes=4000-15999"]
    assert hub.cdn.sent_bytes < len(data) / 2
    monkeypatch.setattr(module, "MAX_HEADER_BYTES", 4000)
    with pytest.raises(FetchError, match="HeaderTooLarge"):
        fetch_headers(f"hf://{NAME}", tmp_path / "n", QUICK)


def test_the_end_of_a_gguf_header_is_found(tiny_dir: Path, tmp_path: Path) -> None:
    data = gguf_of(tiny_dir, tmp_path)
    short, long = 0, len(data)
    while long - short > 1:
        middle = (short + long) // 2
        short, long = (short, middle) if has_whole_header(data[:middle]) else (middle, long)
    first = min(tensor.offset for tensor in read_gguf(tmp_path / "whole-F16.gguf").tensors.values())
    assert first - 32 < long <= first  # data are aligned to 32 bytes
    for _ in range(50):
        assert not has_whole_header(data[: random.randrange(long)])


def string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def test_numbers_of_a_broken_gguf_header_lead_nowhere() -> None:
    start = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string(b"key")
    endless = start + struct.pack("<IIQ", 9, 8, 1 << 63) + b"\0" * 1000
    assert not has_whole_header(endless)
    assert not has_whole_header(b"GGUF" + struct.pack("<IQQ", 3, 1 << 63, 1 << 63) + b"\0" * 1000)
    assert has_whole_header(start + struct.pack("<I", 99))  # an unknown type
    assert has_whole_header(start + struct.pack("<IIQ", 9, 9, 5) + struct.pack("<IQ", 9, 5) * 99)
    assert has_whole_header(b"version https://git-lfs")
    assert not has_whole_header(b"GG")


def test_every_shard_has_its_header(hub: HubServer, tmp_path: Path) -> None:
    files = sharded_files(12, num_bytes=300_000)
    hub.add(NAME, files)
    found = fetch_headers(f"hf://{NAME}", tmp_path, QUICK)
    assert found.total_bytes == sum(map(len, files.values()))
    assert {p.name: p.stat().st_size for p in tmp_path.iterdir()} == {
        name: len(data) for name, data in files.items()
    }
    assert hub.cdn.sent_bytes < 12 * FIRST_SAFETENSORS_BYTES * 1.1


def test_a_long_safetensors_header_is_read_to_its_end(hub: HubServer, tmp_path: Path) -> None:
    header = b'{"__metadata__": {"a": "%s"}}' % (b"x" * 3 * FIRST_SAFETENSORS_BYTES)
    data = struct.pack("<Q", len(header)) + header
    hub.add(NAME, {"config.json": b"{}", "model.safetensors": data})
    fetch_headers(f"hf://{NAME}", tmp_path, QUICK)
    assert (tmp_path / "model.safetensors").read_bytes() == data


@pytest.mark.parametrize(
    "broken",
    [b for b in SOURCES.values() if b.reason not in NOT_OF_HEADERS],
    ids=[name for name, b in SOURCES.items() if b.reason not in NOT_OF_HEADERS],
)
def test_a_broken_source_is_refused_as_by_a_fetch(
    hub: HubServer, tmp_path: Path, broken: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add(NAME, broken.files(), **broken.repository)
    hub.faults.add(*(make(hub) for make in broken.faults))
    for name, value in (("HF_TOKEN", broken.token), ("HF_ENDPOINT", broken.endpoint)):
        if value:
            monkeypatch.setenv(name, value)
    with pytest.raises(FetchError) as refused:
        fetch_headers(broken.uri, tmp_path / "m", broken.limits)
    assert refused.value.reason == broken.reason, refused.value
    assert broken.sentence in refused.value.message


def test_a_damaged_text_is_refused(hub: HubServer, tmp_path: Path) -> None:
    files = model_files() | {"tokenizer.json": b'"' + b"x" * 2000 + b'"'}
    hub.add(NAME, files, listed_sha256={"tokenizer.json": "0" * 64})
    with pytest.raises(FetchError, match="WrongDigest"):
        fetch_headers(f"hf://{NAME}", tmp_path / "m", QUICK)


def test_a_text_of_the_size_of_weights_is_refused(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add(NAME, model_files())
    monkeypatch.setattr(module, "MAX_TEXT_BYTES", 20)
    with pytest.raises(FetchError, match=r"FileTooLarge: config\.json"):
        fetch_headers(f"hf://{NAME}", tmp_path / "m", QUICK)


def test_a_read_that_fails_for_a_while_is_tried_again(hub: HubServer, tmp_path: Path) -> None:
    hub.add(NAME, model_files())
    hub.faults.add(Fault("status", "signature", times=1), Fault("truncate", "signature", times=1))
    assert fetch_headers(f"hf://{NAME}", tmp_path, QUICK).total_bytes > 200_000


def test_a_folder_with_files_is_left_alone(hub: HubServer, tmp_path: Path) -> None:
    hub.add(NAME, model_files())
    (tmp_path / "lost+found").mkdir()
    fetch_headers(f"hf://{NAME}", tmp_path, QUICK)
    before = (tmp_path / "model.safetensors").read_bytes()
    with pytest.raises(FetchError, match="FolderNotEmpty"):
        fetch_headers(f"hf://{NAME}", tmp_path, QUICK)
    assert (tmp_path / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize("has_ranges", [True, False])
def test_a_list_of_a_web_server_is_read_with_and_without_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_ranges: bool
) -> None:
    context, authority = loopback_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    files = {name: model_files(9_000_000)[name] for name in fetched_names(model_files())}
    lines = [f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items()]
    with FileServer(tls=context) as web:
        web.contents = {f"/m/{name}": data for name, data in files.items()}
        web.contents["/m/SHA256SUMS"] = "".join(lines).encode()
        if not has_ranges:
            web.faults.add(Fault("whole"))
        limits = replace(QUICK, read_timeout_s=5.0)
        found = fetch_headers(f"{web.url}/m/SHA256SUMS", tmp_path / "m", limits)
        assert found.total_bytes == sum(map(len, files.values()))
        # A server without ranges has sent what the buffers of the connection take.
        assert web.sent_bytes < (200_000 if has_ranges else 9_000_000)
    weights = (tmp_path / "m/model.safetensors").read_bytes()
    header_bytes = 8 + int.from_bytes(weights[:8], "little")
    assert weights[:header_bytes] == files["model.safetensors"][:header_bytes]
    assert set(weights[header_bytes:]) == {0}
