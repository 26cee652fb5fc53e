"""Fetches from a server of S3."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store
from tests.engine_sources.conftest import Fetch
from tests.support.sources.certificates import loopback_certificate
from tests.support.sources.model_files import fetched_names, model_files, sharded_files
from tests.support.sources.object_store import KEY, REGION, SECRET, s3_server
from tests.support.sources.quick_limits import QUICK

from penstock_engine.contract.model_source import parse_model_source
from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.headers.fetch_headers import fetch_headers
from penstock_engine.sources.protocols.object_store import ObjectStore

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """URL of the server, and the folder whose folders are its buckets."""
    folder = tmp_path_factory.mktemp("buckets")
    with s3_server(folder) as url:
        yield url, folder


@pytest.fixture
def bucket(
    store: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Path]:
    """An empty bucket, and its folder. The environment has the keys of the server."""
    url, folder = store
    name = f"b-{tmp_path.name.replace('_', '-').lower()[-40:]}"
    (folder / name).mkdir()
    for variable, value in {
        "AWS_ENDPOINT_URL": url, "AWS_REGION": REGION, "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }.items():  # fmt: skip
        monkeypatch.setenv(variable, value)
    return name, folder / name


def upload(folder: Path, files: dict[str, bytes]) -> None:
    """Put objects into the bucket of a folder, by the server, which gives them etags."""
    store = S3Store(folder.name, client_options={"allow_http": True})
    for name, data in files.items():
        obstore.put(store, name, data)


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".penstock")
    }


def test_objects_below_a_path_are_a_model(
    bucket: tuple[str, Path], fetch: Fetch, tmp_path: Path
) -> None:
    name, folder = bucket
    files = model_files(20 * QUICK.part_bytes)
    upload(
        folder,
        {f"models/llama/{key}": data for key, data in files.items()} | {"models/llama-2/x": b"x"},
    )
    result = fetch(f"s3://{name}/models/llama")
    assert content(tmp_path / "model") == {key: files[key] for key in fetched_names(files)}
    assert result.resolved_uri.startswith(f"s3://{name}/models/llama#sha256=")
    assert fetch(result.resolved_uri, into="other").downloaded_bytes == 0
    assert fetch(f"s3://{name}/models/llama", into="third").downloaded_bytes == 0


def test_only_changed_objects_are_fetched_and_a_pinned_listing_has_to_stay(
    bucket: tuple[str, Path], fetch: Fetch, tmp_path: Path
) -> None:
    name, folder = bucket
    files = sharded_files(3)
    upload(folder, files)
    pinned = fetch(f"s3://{name}").resolved_uri
    changed = files | {"config.json": b'{"model_type": "other"}'}
    upload(folder, {"config.json": changed["config.json"]})
    result = fetch(f"s3://{name}")
    assert result.downloaded_bytes == len(changed["config.json"])
    assert content(tmp_path / "model") == changed
    with pytest.raises(FetchError, match="DigestMismatch"):
        fetch(pinned, cache="another")


def test_an_object_that_changes_meanwhile_is_not_mixed_with_the_old_one(
    bucket: tuple[str, Path],
) -> None:
    name, folder = bucket
    upload(folder, {"Q4.gguf": b"GGUF" + b"a" * 1000})
    store = ObjectStore(parse_model_source(f"s3://{name}/Q4.gguf"), QUICK)
    (file,) = store.resolve().files
    with store.read(file, 100, 200) as chunks:
        assert b"".join(chunks) == b"a" * 100
    upload(folder, {"Q4.gguf": b"GGUF" + b"b" * 1000})
    with pytest.raises(FetchError, match="SourceChanged"), store.read(file, 200, 300):
        pass


def test_headers_are_read_by_ranges(bucket: tuple[str, Path], tmp_path: Path) -> None:
    name, folder = bucket
    files = model_files(1_000_000)
    upload(folder, files)
    found = fetch_headers(f"s3://{name}", tmp_path / "model", QUICK)
    wanted = fetched_names(files)
    assert found.total_bytes == sum(len(files[key]) for key in wanted)
    assert {key: len(data) for key, data in content(tmp_path / "model").items()} == {
        key: len(files[key]) for key in wanted
    }
    weights = (tmp_path / "model/model.safetensors").read_bytes()
    assert weights[:80] == files["model.safetensors"][:80]
    assert set(weights[-1000:]) == {0}


def test_one_gguf_file(bucket: tuple[str, Path], fetch: Fetch, tmp_path: Path) -> None:
    name, folder = bucket
    upload(folder, {"q/Q4.gguf": b"GGUF4", "q/Q8.gguf": b"GGUF8"})
    fetch(f"s3://{name}/q/Q8.gguf")
    assert content(tmp_path / "model") == {"Q8.gguf": b"GGUF8"}


def test_keys_may_be_in_a_file(
    bucket: tuple[str, Path], fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, folder = bucket
    upload(folder, model_files())
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    file = tmp_path / "credentials"
    file.write_text(f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    assert fetch(f"s3://{name}").num_files == 3
    monkeypatch.setenv("AWS_PROFILE", "none")
    with pytest.raises(FetchError, match="BadCredentialsFile"):
        fetch(f"s3://{name}")


@pytest.mark.parametrize(
    ("path", "environment", "reason"),
    [
        ("", {"AWS_SECRET_ACCESS_KEY": "wrong"}, "Unauthorized"),
        ("", {"AWS_ACCESS_KEY_ID": "nobody"}, "Unauthorized"),
        ("", {"AWS_REGION": "us-other-1"}, "WrongRegion"),
        ("/none", {}, "NotFound"),
        ("/none.gguf", {}, "NotFound"),
        ("-none", {}, "BucketNotFound"),
        ("", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "Unreachable"),
        ("", {"AWS_ENDPOINT_URL": "no url"}, "BadStoreSettings"),
    ],
)
def test_a_broken_bucket_has_a_reason(
    bucket: tuple[str, Path],
    fetch: Fetch,
    path: str,
    environment: dict[str, str],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, folder = bucket
    upload(folder, model_files())
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(FetchError) as refused:
        fetch(f"s3://{name}{path}")
    error = refused.value
    assert error.reason == reason, (error, error.__cause__)
    assert SECRET not in error.message


def test_without_keys_the_reason_says_which_to_set(
    bucket: tuple[str, Path], fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, _ = bucket
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(FetchError) as refused:
        fetch(f"s3://{name}", limits=replace(QUICK, max_attempts=1))
    assert refused.value.reason == "NoCredentials", (refused.value, refused.value.__cause__)
    assert "AWS_ACCESS_KEY_ID" in refused.value.message


def test_the_authority_of_a_store_is_that_of_ssl_cert_file(
    bucket: tuple[str, Path], fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, folder = bucket
    upload(folder, model_files())
    _, authority = loopback_certificate(tmp_path)
    with s3_server(folder.parent, tls=tmp_path) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        with pytest.raises(FetchError, match=r"UntrustedCertificate: .* file of SSL_CERT_FILE"):
            fetch(f"s3://{name}")
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        assert fetch(f"s3://{name}").num_files == 3
