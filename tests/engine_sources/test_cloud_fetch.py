"""Fetches from servers of Google Cloud Storage and of Azure's blobs."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import obstore
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from obstore.store import AzureStore
from tests.engine_sources.conftest import Fetch
from tests.engine_sources.test_object_store_fetch import content
from tests.support.sources.azure import ACCOUNT, KEY, azure_server, make_container
from tests.support.sources.gcs import gcs_server, make_bucket, put_object
from tests.support.sources.model_files import fetched_names, model_files, sharded_files
from tests.support.sources.quick_limits import QUICK

from penstock_engine.contract.model_source import parse_model_source
from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.headers.fetch_headers import fetch_headers
from penstock_engine.sources.protocols.object_store import ObjectStore

pytestmark = pytest.mark.slow

Upload = Callable[[str, bytes], None]


@dataclass(frozen=True)
class Cloud:
    """A server. settings: variables by which it is read."""

    scheme: str
    settings: Mapping[str, str]
    make: Callable[[str], Upload]  # a bucket of a name; returns what puts an object into it


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    if shutil.which("npm") is None:
        pytest.skip("azurite comes from npm, which is not installed")
    with azure_server(tmp_path_factory.mktemp("blobs")) as url:
        settings = {
            "AZURE_STORAGE_ENDPOINT": url, "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
        }  # fmt: skip

        def make(name: str) -> Upload:
            make_container(url, name)
            store = AzureStore(
                name, endpoint=url, account_name=ACCOUNT, account_key=KEY, client_options={"allow_http": True}
            )  # fmt: skip
            return lambda key, data: void(obstore.put(store, key, data))

        yield Cloud("az", settings, make)


@pytest.fixture(scope="module")
def google() -> Iterator[Cloud]:
    with gcs_server() as url:

        def make(name: str) -> Upload:
            make_bucket(url, name)
            return lambda key, data: put_object(url, name, key, data)

        yield Cloud("gs", {"GOOGLE_BASE_URL": url, "GOOGLE_SKIP_SIGNATURE": "true"}, make)


def void(_: object) -> None:
    pass


@pytest.fixture(params=["azure", "google"])
def cloud(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """A cloud, whose settings are in the environment."""
    cloud: Cloud = request.getfixturevalue(request.param)
    for name, value in cloud.settings.items():
        monkeypatch.setenv(name, value)
    return cloud


@pytest.fixture
def bucket(cloud: Cloud, tmp_path: Path) -> tuple[str, Upload]:
    """The URI of an empty bucket, and what puts an object into it."""
    name = f"b-{tmp_path.name.replace('_', '-').lower()[-40:].strip('-')}".replace("--", "-")
    return f"{cloud.scheme}://{name}", cloud.make(name)


def test_objects_below_a_path_are_a_model(
    bucket: tuple[str, Upload], fetch: Fetch, tmp_path: Path
) -> None:
    uri, upload = bucket
    files = model_files(20 * QUICK.part_bytes)
    for name, data in files.items():
        upload(f"models/llama/{name}", data)
    upload("models/llama-2/config.json", b"{}")
    result = fetch(f"{uri}/models/llama")
    assert content(tmp_path / "model") == {name: files[name] for name in fetched_names(files)}
    assert result.resolved_uri.startswith(f"{uri}/models/llama#sha256=")
    assert fetch(result.resolved_uri, into="other").downloaded_bytes == 0


def test_only_changed_objects_are_fetched_and_a_pinned_listing_has_to_stay(
    bucket: tuple[str, Upload], fetch: Fetch
) -> None:
    uri, upload = bucket
    for name, data in sharded_files(3).items():
        upload(name, data)
    pinned = fetch(uri).resolved_uri
    changed = b'{"model_type": "other"}'
    upload("config.json", changed)
    assert fetch(uri).downloaded_bytes == len(changed)
    with pytest.raises(FetchError, match="DigestMismatch"):
        fetch(pinned, cache="another")


def test_an_object_that_changes_meanwhile_is_not_mixed_with_the_old_one(
    bucket: tuple[str, Upload],
) -> None:
    uri, upload = bucket
    upload("Q4.gguf", b"GGUF" + b"a" * 1000)
    store = ObjectStore(parse_model_source(f"{uri}/Q4.gguf"), QUICK)
    (file,) = store.resolve().files
    with store.read(file, 100, 200) as chunks:
        assert b"".join(chunks) == b"a" * 100
    upload("Q4.gguf", b"GGUF" + b"b" * 1000)
    with pytest.raises(FetchError, match="SourceChanged"), store.read(file, 200, 300):
        pass


def test_headers_are_read_by_ranges(bucket: tuple[str, Upload], tmp_path: Path) -> None:
    uri, upload = bucket
    files = model_files(1_000_000)
    for name, data in files.items():
        upload(name, data)
    found = fetch_headers(uri, tmp_path / "model", QUICK)
    assert found.total_bytes == sum(len(files[name]) for name in fetched_names(files))
    assert (tmp_path / "model/config.json").read_bytes() == files["config.json"]


@pytest.mark.parametrize("path", ["/none", "/none.gguf"])
def test_a_place_with_nothing_has_a_reason(
    bucket: tuple[str, Upload], fetch: Fetch, path: str
) -> None:
    uri, upload = bucket
    upload("config.json", b"{}")
    with pytest.raises(FetchError) as refused:
        fetch(f"{uri}{path}")
    assert refused.value.reason == "NotFound", (refused.value, refused.value.__cause__)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        # Azure itself says AuthenticationFailed, azurite as if the owner of the key had no right.
        ({"AZURE_STORAGE_ACCOUNT_KEY": "d3Jvbmc="}, "Forbidden"),
        ({}, "BucketNotFound"),
        ({"AZURE_STORAGE_ACCOUNT_KEY": "no base 64"}, "BadStoreSettings"),
        ({"AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:9/{ACCOUNT}"}, "Unreachable"),
    ],
)
def test_wrong_settings_of_azure_have_a_reason(
    azure: Cloud,
    fetch: Fetch,
    settings: dict[str, str],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {**azure.settings, **settings}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(FetchError) as refused:
        fetch("az://any-container")
    assert refused.value.reason == reason, (refused.value, refused.value.__cause__)


def private_key() -> str:
    """A key as the file of a service account has it."""
    key = rsa.generate_private_key(65537, 2048)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, form, serialization.NoEncryption()).decode()


def test_a_service_account_of_google_is_a_file(
    google: Cloud, fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = google.make("account")
    for name, data in model_files().items():
        upload(name, data)
    file = tmp_path / "google.json"
    monkeypatch.setenv("GOOGLE_BASE_URL", google.settings["GOOGLE_BASE_URL"])
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    with pytest.raises(FetchError, match="BadStoreSettings"):
        fetch("gs://account")
    # This server accepts any token, so the test needs none.
    account = {"type": "service_account", "disable_oauth": True, "private_key_id": "1"}
    names = {"client_email": "model@example.com", "private_key": private_key()}
    file.write_text(json.dumps(account | names))
    assert fetch("gs://account").num_files == 3
