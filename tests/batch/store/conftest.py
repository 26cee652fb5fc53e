"""Both stores: a folder, and a bucket of a real server of S3."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.sources.object_store import KEY, REGION, SECRET, s3_server

from penstock.batch.store.folder_store import FolderStore
from penstock.batch.store.object_store import ObjectStore
from penstock.batch.store.s3_store import S3Store

MakeStore = Callable[[], ObjectStore]


@pytest.fixture(scope="session")
def s3_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("s3")
    (folder / "batches").mkdir()
    with s3_server(folder) as url:
        yield url


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.slow)])
def make_store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> MakeStore:
    """Open the store of the test, as each process does."""
    if request.param == "folder":
        return lambda: FolderStore(tmp_path / "store")
    monkeypatch.setenv("AWS_ENDPOINT_URL", request.getfixturevalue("s3_url"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", REGION)
    return lambda: S3Store("batches", tmp_path.name)
