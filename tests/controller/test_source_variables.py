"""The option --source-variable of the operator."""

import pytest
import typer

from penstock.cli.servers.operator import source_variables


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
