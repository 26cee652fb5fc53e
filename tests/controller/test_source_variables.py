"""Options of the operator about fetched models: --source-variable and --node-cache-path."""

import pytest
import typer

from penstock.cli.servers.operator import folder_of_nodes, source_variables


def test_names_and_values() -> None:
    given = ["HF_ENDPOINT=https://hub/?a=b", "NO_PROXY=.svc"]
    assert source_variables(given) == {"HF_ENDPOINT": "https://hub/?a=b", "NO_PROXY": ".svc"}


@pytest.mark.parametrize(
    "text", ["HF_TOKEN=hf_secret", "LD_PRELOAD=/x", "HF_ENDPOINT=", "HF_ENDPOINT", ""]
)
def test_other_variables_are_refused_without_their_value(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="must be NAME=VALUE") as refused:
        source_variables([text])
    assert "hf_secret" not in str(refused.value)


@pytest.mark.parametrize(
    "path", ["", "/", "models", "/var//models", "/var/../etc", "/models/", "/./a"]
)
def test_the_cache_of_a_node_has_a_folder_of_its_own(path: str) -> None:
    assert folder_of_nodes("/var/lib/penstock/models") == "/var/lib/penstock/models"
    with pytest.raises(typer.BadParameter, match="--node-cache-path must be an absolute path"):
        folder_of_nodes(path)
