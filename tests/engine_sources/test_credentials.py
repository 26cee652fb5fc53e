"""A folder of credentials, as a Secret is mounted: what counts, what is ignored, and what is refused."""

import os
from pathlib import Path

import pytest
from tests.support.sources.hub_server import HubServer
from tests.support.sources.model_files import model_files
from tests.support.sources.quick_limits import QUICK

from penstock_engine.sources.credentials import apply_credentials, read_credentials
from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.headers.report import report_sources
from penstock_engine.sources.report import run_fetch


def secret(folder: Path, files: dict[str, bytes]) -> Path:
    """A folder as Kubernetes mounts a Secret: links to files of a folder that it replaces."""
    content = folder / "..2026_11_29"
    content.mkdir(parents=True)
    (folder / "..data").symlink_to(content.name)
    for name, data in files.items():
        (content / name).write_bytes(data)
        (folder / name).symlink_to(f"..data/{name}")
    return folder


def test_files_are_variables_by_a_list(tmp_path: Path) -> None:
    folder = secret(
        tmp_path / "secret",
        {
            "HF_TOKEN": b"hf_1\n", "AWS_REGION": b"eu-1", "AZURE_STORAGE_ACCOUNT_KEY": b"a==\r\n",
            "HTTPS_PROXY": b"http://proxy:3128", "google.json": b"{}", "netrc": b"", "ca.crt": b"",
            ".dockerconfigjson": b"{}", "LD_PRELOAD": b"/evil.so", "PATH": b"/evil", "hf_token": b"x",
        },
    )  # fmt: skip
    credentials = read_credentials(folder)
    assert credentials.variables == {
        "HF_TOKEN": "hf_1", "AWS_REGION": "eu-1", "AZURE_STORAGE_ACCOUNT_KEY": "a==",
        "HTTPS_PROXY": "http://proxy:3128", "GOOGLE_APPLICATION_CREDENTIALS": f"{folder}/google.json",
        "NETRC": f"{folder}/netrc", "SSL_CERT_FILE": f"{folder}/ca.crt", "DOCKER_CONFIG": str(folder),
    }  # fmt: skip
    assert credentials.ignored == ("LD_PRELOAD", "PATH", "hf_token")


def test_other_names_of_the_files(tmp_path: Path) -> None:
    folder = secret(
        tmp_path / "secret",
        {"GOOGLE_APPLICATION_CREDENTIALS": b"{}", ".netrc": b"", "config.json": b"{}"},
    )
    assert read_credentials(folder).variables == {
        "GOOGLE_APPLICATION_CREDENTIALS": f"{folder}/GOOGLE_APPLICATION_CREDENTIALS",
        "NETRC": f"{folder}/.netrc", "DOCKER_CONFIG": str(folder),
    }  # fmt: skip


@pytest.mark.parametrize(
    "value", [b"hf_1\nhf_2", b"hf_1\n\n", b"hf_1\0", b"\xff\xfe"],
    ids=["two lines", "two ends", "nul", "binary"],
)  # fmt: skip
def test_a_value_that_is_none_is_refused_without_being_shown(tmp_path: Path, value: bytes) -> None:
    with pytest.raises(FetchError) as refused:
        read_credentials(secret(tmp_path / "secret", {"HF_TOKEN": value}))
    assert refused.value.reason == "BadCredentials"
    assert "HF_TOKEN" in refused.value.message
    assert "hf_1" not in refused.value.message


def test_a_folder_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"BadCredentials: .*/none cannot be read: No such file"):
        read_credentials(tmp_path / "none")


def test_files_win_over_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://other:1")
    lines: list[str] = []
    folder = secret(tmp_path / "secret", {"HTTPS_PROXY": b"http://proxy:3128", "notes": b"private"})
    apply_credentials(folder, lines.append)
    assert os.environ["HTTPS_PROXY"] == "http://proxy:3128"
    assert "https_proxy" not in os.environ
    assert lines == [f"Ignoring 'notes' in {folder}: it is not a setting of a source"]


def test_a_fetch_uses_them(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("org/name", model_files(), token="hf_right")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    folder = secret(tmp_path / "secret", {"HF_TOKEN": b"hf_right\n"})
    report = run_fetch("hf://org/name", tmp_path / "model", None, QUICK, folder)
    assert report["ok"], report
    report = run_fetch("hf://org/name", tmp_path / "other", None, QUICK, tmp_path / "none")
    assert (report["reason"], report["is_retryable"]) == ("BadCredentials", False)


def test_a_refusal_names_what_was_ignored(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A misspelled key of a Secret, which the sentence on the missing token does not show."""
    monkeypatch.delenv("HF_TOKEN", raising=False)
    hub.add("org/name", model_files(), token="hf_right")
    folder = secret(tmp_path / "secret", {"HF_TOKN": b"hf_right"})
    ending = "; ignored of the credentials: HF_TOKN"
    report = run_fetch("hf://org/name", tmp_path / "model", None, QUICK, folder)
    assert report["reason"] == "RepositoryNotFound"
    assert report["message"].endswith(f"a token that may read it{ending}")
    checked = report_sources([(tmp_path / "headers", "hf://org/name")], folder, QUICK)
    assert checked.verdict is not None
    assert checked.verdict["message"].endswith(ending)
    report = run_fetch("https://127.0.0.1/m.gguf", tmp_path / "other", None, QUICK, folder)
    assert report["reason"] == "MissingDigest"
    assert "HF_TOKN" not in report["message"]
