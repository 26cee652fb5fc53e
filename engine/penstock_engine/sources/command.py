"""The command `penstock-engine fetch`: its options and its output."""

import json
from pathlib import Path
from typing import Annotated

import typer

from penstock_engine.sources.limits import FetchLimits

DEFAULT_LIMITS = FetchLimits()


def fetch(
    uri: Annotated[
        str, typer.Argument(help="Source of the model, such as hf://ORG/NAME@REVISION.")
    ],
    into: Annotated[Path, typer.Option(help="Folder that will hold the model.")],
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder of models that several fetches share. Default: none is shared."),
    ] = None,
    cache_limit_bytes: Annotated[
        int | None,
        typer.Option(
            min=1, help="Size of the cache in bytes, kept by eviction. Default: its volume's."
        ),
    ] = None,
    deadline_seconds: Annotated[
        float, typer.Option(min=1, help="Seconds after which the fetch gives up.")
    ] = DEFAULT_LIMITS.deadline_s,
    connections: Annotated[
        int, typer.Option(min=1, max=64, help="Number of parallel requests.")
    ] = DEFAULT_LIMITS.num_connections,
    credentials: Annotated[
        Path | None,
        typer.Option(help="Folder with a file for each credential, such as a mounted Secret."),
    ] = None,
    termination_log: Annotated[
        Path | None, typer.Option(help="File that the result is written to, too.")
    ] = None,
) -> None:
    """Fetch a model into a folder, and print the result as JSON. Exit code 75: it may work later."""
    from penstock_engine.sources.report import (
        run_fetch,  # imports what the other commands do not need
    )

    limits = FetchLimits(
        deadline_s=deadline_seconds, num_connections=connections, cache_bytes=cache_limit_bytes
    )
    report, exit_code = run_fetch(uri, into, cache, limits, credentials)
    text = json.dumps(report)
    typer.echo(text)
    if termination_log is not None:
        termination_log.write_text(text)
    raise typer.Exit(exit_code)
