"""Errors of `penstock keys` about a wrong id repeat no secret."""

import pytest
from tests.support.gateway_callers import api_key
from typer.testing import CliRunner

from penstock.cli.keys.commands import app

KEY = api_key(1)


@pytest.mark.parametrize("command", ["revoke", "rotate"])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (KEY.text, f"give its id alone, {KEY.id}"),
        (KEY.secret, "an id of a key has 12 characters"),
        (KEY.text + "x", "an id of a key has 12 characters"),
    ],
)
def test_a_wrong_id_is_explained_and_not_repeated(command, given, message):
    result = CliRunner(env={"TERMINAL_WIDTH": "200", "COLUMNS": "200"}).invoke(
        app, [command, given]
    )
    assert result.exit_code == 2
    assert message in result.output
    assert KEY.secret not in result.output
