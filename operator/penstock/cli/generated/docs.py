"""`penstock docs`: writes the generated reference pages."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.api.conversion.settings import SETTINGS
from penstock.api.generation import docgen
from penstock.chart.connections import page as connections
from penstock.chart.values import values_yaml
from penstock.cli.generated import package_page
from penstock.cli.generated.write_or_check import write_or_check
from penstock.core.reconcile import condition_types
from penstock.core.rollout import phase_reference
from penstock.core.runtimes import page as engine_settings
from penstock.observability import logs
from penstock.observability.metrics import page as metrics


def command(
    output: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("docs/reference"),
    check: Annotated[bool, typer.Option(help="Write nothing; fail if a file differs.")] = False,
) -> None:
    """Write the generated reference pages, or check that they are up to date."""
    pages = {
        **docgen.files(),
        "rollout-phases.md": phase_reference.page(),
        "chart-values.md": values_yaml.page(),
        "connections.md": connections.page(),
        "conditions.md": condition_types.page(),
        "engine-settings.md": engine_settings.page(SETTINGS),
        "metrics.md": metrics.page(),
        "logs.md": logs.page(),
        "packages.md": package_page.page(),
    }
    write_or_check(output, pages, check=check)
