"""Fetches from web servers: archives, single files and lists."""

import hashlib
import io
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.engine_sources.conftest import Fetch
from tests.support.sources.certificates import loopback_certificate
from tests.support.sources.faults import Fault
from tests.support.sources.file_server import FileServer
from tests.support.sources.model_files import fetched_names, model_files
from tests.support.sources.quick_limits import QUICK
from tests.support.sources.registry import tar_of

from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.storage.model_folder import read_manifest


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """A web server with TLS, whose authority is trusted."""
    context, authority = loopback_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    with FileServer(tls=context) as server:
        yield server


def put(web: FileServer, path: str, content: bytes) -> str:
    """Offer a file. Returns its URI with its digest."""
    web.contents[path] = content
    return f"{web.url}{path}#sha256={hashlib.sha256(content).hexdigest()}"


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".penstock")
    }


def wanted(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: files[name] for name in fetched_names(files)}


@pytest.mark.parametrize(
    ("prefix", "compress"), [("", True), ("./", False), ("models/llama/", True)]
)
def test_an_archive_is_unpacked(
    web: FileServer, fetch: Fetch, tmp_path: Path, prefix: str, compress: bool
) -> None:
    files = model_files()
    packed = {f"{prefix}{name}": data for name, data in files.items()} | {"other/readme.txt": b"x"}
    name = "/m/model.tar.gz" if compress else "/m/model.tar"
    uri = put(web, name, tar_of(packed, compress=compress))
    result = fetch(uri)
    assert content(tmp_path / "model") == wanted(files)
    assert result.resolved_uri == uri
    # The archive is not kept beside its files.
    blobs = [path for path in (tmp_path / "cache/blobs").rglob("*") if path.is_file()]
    assert len(blobs) == len(wanted(files))
    web.requests.clear()
    assert fetch(uri, into="other").num_cache_hits == 3
    assert web.requests == []


def test_a_list_names_files_with_digests(web: FileServer, fetch: Fetch, tmp_path: Path) -> None:
    files = model_files()
    lines = [f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items()]
    for name, data in files.items():
        web.contents[f"/m/{name}"] = data
    pinned = put(web, "/m/SHA256SUMS", "".join(lines).encode())
    result = fetch(f"{web.url}/m/SHA256SUMS")
    assert content(tmp_path / "model") == wanted(files)
    assert result.resolved_uri == pinned
    web.contents["/m/SHA256SUMS"] += b"0" * 64 + b"  new.txt\n"
    with pytest.raises(FetchError, match="DigestMismatch"):
        fetch(pinned, cache="other")


def test_one_gguf_file_may_come_from_a_server_without_ranges(
    web: FileServer, fetch: Fetch, tmp_path: Path
) -> None:
    data = b"GGUF" + b"q" * 3 * QUICK.part_bytes
    web.faults.add(Fault("whole"))
    fetch(put(web, "/q4.gguf", data))
    assert content(tmp_path / "model") == {"q4.gguf": data}


def test_the_password_of_a_file_is_sent(
    web: FileServer, fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    fetch(put(web, "/q4.gguf", b"GGUF"))
    assert {headers["Authorization"] for _, _, headers in web.requests} == {"Basic bWU6c2VjcmV0"}


def bomb() -> bytes:
    """Return a compressed archive whose content is a thousand times as large."""
    return tar_of({"config.json": b"{}", "model.safetensors": bytes(40 << 20)})


def long_header() -> bytes:
    """An archive whose name of a file has two mebibytes."""
    return tar_of({"x" * (2 << 20): b"", "model.safetensors": b""}, compress=False)


def device() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        member = tarfile.TarInfo("model.safetensors")
        member.type = tarfile.CHRTYPE
        tar.addfile(member)
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "data", "reason", "limits"),
    [
        ("m.tar.gz", bomb(), "ArchiveBomb", QUICK),
        ("m.tar", long_header(), "ArchiveBomb", QUICK),
        (
            "m.tar",
            tar_of({f"f{n}": b"" for n in range(20)}),
            "TooManyFiles",
            replace(QUICK, max_files=9),
        ),
        ("m.tar", tar_of({"../../etc/cron.d/x": b"x"}), "UnsafeName", QUICK),
        ("m.tar", tar_of({"/etc/passwd": b"x"}), "UnsafeName", QUICK),
        ("m.tar", tar_of({}, {"config.json": "/etc/passwd"}), "LinkInArchive", QUICK),
        ("m.tar", tar_of({}, {"x": "../../../etc"}), "LinkInArchive", QUICK),
        ("m.tar", device(), "NotAFile", QUICK),
        ("m.tar", tar_of(model_files())[:-2000], "BadArchive", QUICK),
        ("m.tar", b"no archive", "BadArchive", QUICK),
        ("m.tar", tar_of({"config.json": b"{}"}), "NoWeights", QUICK),
        ("m.zip", b"PK", "UnsupportedFile", QUICK),
        ("SHA256SUMS", b"<html>", "BadList", QUICK),
        ("SHA256SUMS", b"0" * 64 + b"  ../model.safetensors\n", "UnsafeName", QUICK),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_broken_archive_or_list_has_a_reason(
    web: FileServer,
    fetch: Fetch,
    tmp_path: Path,
    name: str,
    data: bytes,
    reason: str,
    limits: FetchLimits,
) -> None:
    uri = put(web, f"/{name}", data)
    with pytest.raises(FetchError) as refused:
        fetch(uri, limits=limits)
    assert refused.value.reason == reason, refused.value
    assert read_manifest(tmp_path / "model") is None
    assert not list((tmp_path / "cache").glob("partial/*.unpacked"))
    assert {path.name for path in tmp_path.iterdir()} <= {
        "cache",
        "model",
        "authority.pem",
        "certificate.pem",
        "key.pem",
    }


def test_an_archive_needs_a_digest_and_has_to_have_it(web: FileServer, fetch: Fetch) -> None:
    uri = put(web, "/m.tar", tar_of(model_files()))
    with pytest.raises(FetchError, match="MissingDigest"):
        fetch(uri.partition("#")[0])
    with pytest.raises(FetchError, match="WrongDigest"):
        fetch(uri[:-64] + "0" * 64)


def test_a_certificate_has_to_be_trusted(
    web: FileServer, fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = put(web, "/q4.gguf", b"GGUF")
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(FetchError, match="UntrustedCertificate"):
        fetch(uri)


def test_https_is_not_left_for_http(web: FileServer, fetch: Fetch) -> None:
    uri = put(web, "/q4.gguf", b"GGUF")
    web.faults.add(Fault("redirect", location="http://127.0.0.1:1/q4.gguf"))
    with pytest.raises(FetchError, match="InsecureRedirect"):
        fetch(uri)
