"""`penstock manifests`: values from files and assignments."""

from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from penstock.cli.manifests import command

app = typer.Typer()
app.command()(command)


def run(*arguments: str, stdin: str = "") -> Any:
    return CliRunner().invoke(
        app, ["--image", "a.example/b:v1", *arguments], input=stdin, env={"COLUMNS": "200"}
    )


def gateway(output: str) -> Any:
    """The gateway's Deployment among printed manifests."""
    (found,) = [
        each
        for each in yaml.load_all(output, yaml.CSafeLoader)
        if each["kind"] == "Deployment" and each["metadata"]["name"] == "penstock-gateway"
    ]
    return found


def test_later_values_win(tmp_path: Path) -> None:
    """Assignments are taken after files."""
    file = tmp_path / "values.yaml"
    file.write_text("gateway: {replicas: 3, podLabels: {team: a}}\ncrds: {enabled: false}\n")
    done = run(
        "--namespace", "here", "--values", str(file), "--values", "-",
        "--set", "gateway.port=9000", "--set", "gateway.replicas=5",
        stdin="gateway: {replicas: 4, podAnnotations: {b: c}}",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    deployment = gateway(done.output)
    template = deployment["spec"]["template"]
    assert deployment["metadata"]["namespace"] == "here"
    assert deployment["spec"]["replicas"] == 5
    assert template["metadata"]["labels"]["team"] == "a"
    assert template["metadata"]["annotations"] == {"b": "c"}
    container = template["spec"]["containers"][0]
    assert "--port=9000" in container["args"]
    assert container["image"] == "a.example/b:v1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "gateway.replica=1"), "gateway.replica: the chart has no such value"),
        (("--set", "gateway"), "is not of the form PATH=YAML"),
        (("--set", "gateway={"), "'gateway={'"),
        (("--values", "/nowhere.yaml"), "No such file"),
        (("--namespace", "Bad_NS"), "'Bad_NS' is no name of a namespace"),
        (("--namespace", "n" * 64), "is no name of a namespace"),
        (("--namespace", "team-"), "with a letter or digit at both ends"),
        (("--values", "-"), "- is no map of values"),
    ],
)
def test_wrong_values_are_refused(arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments, stdin="[1]")
    assert done.exit_code == 2
    assert message in done.output
