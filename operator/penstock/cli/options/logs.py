"""Options for the logs of commands that run as a server."""

from typing import Annotated

import typer

from penstock.clients.machine.logs import LogFormat, LogLevel

LogFormatOption = Annotated[
    LogFormat | None,
    typer.Option(help="Format of log lines. Default: text on a terminal, else json."),
]
LogLevelOption = Annotated[LogLevel, typer.Option(help="Least severe level that is logged.")]
