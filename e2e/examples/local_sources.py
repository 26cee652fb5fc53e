"""Servers of this machine that have the models of examples/ at the places that these name."""

import base64
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import obstore
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from obstore.store import AzureStore, S3Store
from tests.support.engine.gguf_files import write_gguf
from tests.support.sources.azure import ACCOUNT, azure_server, make_container
from tests.support.sources.azure import KEY as AZURE_KEY
from tests.support.sources.certificates import loopback_certificate
from tests.support.sources.file_server import FileServer
from tests.support.sources.gcs import gcs_server, make_bucket, put_object
from tests.support.sources.hub_server import HubServer
from tests.support.sources.object_store import KEY, REGION, SECRET, s3_server
from tests.support.sources.registry import push_artifact, registry_server

BUCKET, FOLDER = "models", "chat/v3"  # of s3://, gs:// and az:// in the examples
TOKEN = "hf_examples"
AZURE = "AZURE_STORAGE_ENDPOINT"
GGUF = "/chat/model.gguf"
PASSWORD = f"Basic {base64.b64encode(b'reader:secret').decode()}"
FICTITIOUS_DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


@dataclass(frozen=True)
class Sources:
    """Running servers.

    variables: for `operator.sourceVariables`. addresses: of servers, by those that the examples have for
    them. values: of the settings of Secrets, by name. folder: has the files of Secrets.
    """

    variables: Mapping[str, str]
    addresses: Mapping[str, str]
    values: Mapping[str, str]
    folder: Path


@contextmanager
def local_sources(model: Path, adapter: Path, folder: Path) -> Iterator[Sources]:
    """Serve a model and a LoRA adapter of it at the places of the examples. folder: an empty one."""
    files, adapter_files = _content(model), _content(adapter)
    with ExitStack() as stack:
        hub = stack.enter_context(HubServer())
        hub.add("HuggingFaceTB/SmolLM2-135M-Instruct", files)
        hub.add("Qwen/Qwen3-0.6B", files)
        hub.add("example/qwen3-sql-lora", {}, token=TOKEN).commit(adapter_files, "v1")
        s3 = stack.enter_context(s3_server(folder / "s3"))
        (folder / "s3" / BUCKET).mkdir()
        gcs = stack.enter_context(gcs_server())
        variables = {"HF_ENDPOINT": hub.url, "GOOGLE_BASE_URL": gcs}
        if shutil.which("npm"):  # azurite comes from there
            azure = stack.enter_context(azure_server(folder / "azure"))
            _fill_azure(azure, files)
            variables[AZURE] = azure
        registry = stack.enter_context(registry_server())
        push_artifact(registry, "models/chat", "v3", files)
        _fill_stores(s3, gcs, files)
        web, digest = stack.enter_context(_web_server(model, folder))
        (folder / "service-account.json").write_text(json.dumps(_google_account()))
        yield Sources(
            variables,
            {
                "https://minio.storage:9000": s3, "registry.example.com": registry,
                "https://downloads.example.com": web, FICTITIOUS_DIGEST: digest,
                "file:///models/chat": f"file://{model}",
            },
            {
                "HF_TOKEN": TOKEN, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
                "AWS_REGION": REGION, "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
                "AZURE_STORAGE_ACCOUNT_KEY": AZURE_KEY, "docker-username": "reader",
                "docker-password": "secret",
            },
            folder,
        )  # fmt: skip


def _content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def _fill_stores(s3: str, gcs: str, files: Mapping[str, bytes]) -> None:
    store = S3Store(
        BUCKET, endpoint=s3, region=REGION, access_key_id=KEY, secret_access_key=SECRET,
        client_options={"allow_http": True},
    )  # fmt: skip
    make_bucket(gcs, BUCKET)
    for name, data in files.items():
        obstore.put(store, f"{FOLDER}/{name}", data)
        put_object(gcs, BUCKET, f"{FOLDER}/{name}", data)


def _fill_azure(url: str, files: Mapping[str, bytes]) -> None:
    make_container(url, BUCKET)
    store = AzureStore(
        BUCKET, endpoint=url, account_name=ACCOUNT, account_key=AZURE_KEY,
        client_options={"allow_http": True},
    )  # fmt: skip
    for name, data in files.items():
        obstore.put(store, f"{FOLDER}/{name}", data)


class PasswordServer(FileServer):
    """A web server that wants the password of the example's Secret."""

    def answer(self, handler: Any, path: str) -> None:
        if handler.headers.get("Authorization") == PASSWORD:
            super().answer(handler, path)
        else:
            handler.send_status(401)


@contextmanager
def _web_server(model: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """Serve the model as a GGUF file, with a certificate that nobody trusts yet. Yields URL and SHA-256.

    Writes the files of the example's Secret.
    """
    context, authority = loopback_certificate(folder)
    authority.rename(folder / "ca.crt")
    (folder / ".netrc").write_text("machine 127.0.0.1 login reader password secret\n")
    (folder / ".netrc").chmod(0o600)
    file = folder / "model.gguf"
    write_gguf(model, file, "F16")
    with PasswordServer(tls=context) as server:
        server.contents[GGUF] = file.read_bytes()
        yield server.url, hashlib.sha256(file.read_bytes()).hexdigest()


def _google_account() -> dict[str, object]:
    """A service account, whose tokens the server does not check."""
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return {
        "type": "service_account", "disable_oauth": True, "private_key_id": "1",
        "client_email": "reader@example.com", "private_key": key.decode(),
    }  # fmt: skip
