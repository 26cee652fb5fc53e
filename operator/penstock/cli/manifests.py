"""`penstock manifests`: prints the manifests that install Penstock."""

import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from penstock.chart.names import MAX_NAMESPACE_LENGTH, NAMESPACE, NAMESPACE_PATTERN
from penstock.chart.rendering import kubernetes_yaml
from penstock.chart.rendering.install import image_values, install_manifests
from penstock.chart.rendering.resolve import RefusedValue
from penstock.chart.values.values import InvalidValues, merged


def _check_namespace(name: str) -> str:
    if len(name) > MAX_NAMESPACE_LENGTH or not re.fullmatch(NAMESPACE_PATTERN, name):
        raise typer.BadParameter(
            f"{name!r} is no name of a namespace: at most {MAX_NAMESPACE_LENGTH} lower-case letters, "
            "digits and '-', with a letter or digit at both ends"
        )
    return name


def command(
    image: Annotated[
        str,
        typer.Option(
            help="Image of operator and gateway, such as HOST/penstock:TAG. That of engines is "
            "HOST/penstock-engine:TAG, unless operator.engineImage is set."
        ),
    ],
    namespace: Annotated[
        str, typer.Option(help="Namespace to install in.", callback=_check_namespace)
    ] = NAMESPACE,
    values: Annotated[
        list[Path] | None,
        typer.Option(help="YAML file with values of the Helm chart, or -; may be repeated."),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Value of the Helm chart as PATH=YAML; may be repeated.",
            metavar="PATH=YAML",
        ),
    ] = None,
) -> None:
    """Print the manifests that install Penstock, for kubectl apply."""
    given = image_values(image)
    for each in [*map(_from_file, values or ()), *map(_from_assignment, assignments or ())]:
        given = merged(given, each)
    try:
        manifests = install_manifests(given, namespace)
    except (InvalidValues, RefusedValue) as error:
        raise typer.BadParameter(str(error)) from error
    typer.echo(kubernetes_yaml.dump_all(manifests), nl=False)


def _from_file(path: Path) -> dict[str, Any]:
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
        found = yaml.safe_load(text) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise typer.BadParameter(f"{path}: {error}") from error
    if not isinstance(found, dict):
        raise typer.BadParameter(f"{path} is no map of values")
    return found


def _from_assignment(text: str) -> dict[str, Any]:
    path, equals, value = text.partition("=")
    if not path or not equals:
        raise typer.BadParameter(
            f"{text!r} is not of the form PATH=YAML, such as gateway.port=9000"
        )
    try:
        made: Any = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise typer.BadParameter(f"{text!r}: {error}") from error
    for name in reversed(path.split(".")):
        made = {name: made}
    assert isinstance(made, dict)
    return made
