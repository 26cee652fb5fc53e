"""Options and output of `penstock-engine fetch`, `hold`, `node-cache`, and of `preflight` for sources."""

import asyncio
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from penstock_engine.contract.fetch_output import FAILED, FAILED_FOR_NOW, SUCCEEDED
from penstock_engine.files.termination_text import termination_text
from penstock_engine.sources.credentials import apply_credentials
from penstock_engine.sources.deadline import deadline_exceeded, hang_time_s
from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.headers.report import SourcesReport, report_sources
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.report import failure, run_fetch, say
from penstock_engine.sources.storage.model_folder import remove_others

DEFAULT_LIMITS = FetchLimits()

MAX_SOURCES = 8  # of a preflight; the URIs of more do not fit into a termination message

Credentials = Annotated[
    Path | None,
    typer.Option(help="Folder with a file for each credential, such as a mounted Secret."),
]
TerminationLog = Annotated[
    Path | None, typer.Option(help="File that the result is written to, too.")
]
CacheLimit = Annotated[
    int | None,
    typer.Option(
        min=1, help="Size of the cache in bytes, kept by eviction. Default: its volume's."
    ),
]
Connections = Annotated[int, typer.Option(min=1, max=64, help="Number of parallel requests.")]
NodeCache = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the cache of the node, which `node-cache` writes and this process only reads. "
        "Default: there is none."
    ),
]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FOLDER=URI",
        help="Source of a model whose configuration, tokenizer and headers are fetched into an empty "
        "folder and checked there; may be repeated.",
    ),
]


def fetch(
    uri: Annotated[
        str, typer.Argument(help="Source of the model, such as hf://ORG/NAME@REVISION.")
    ],
    into: Annotated[Path, typer.Option(help="Folder that will hold the model.")],
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder of models that several fetches share. Default: none is shared."),
    ] = None,
    cache_limit_bytes: CacheLimit = None,
    node_cache: NodeCache = None,
    hold_seconds: Annotated[
        float,
        typer.Option(
            min=0,
            max=3600,
            help="Seconds after the fetch in which the model stays in the cache, until `hold` begins.",
        ),
    ] = DEFAULT_LIMITS.hold_s,
    deadline_seconds: Annotated[
        float, typer.Option(min=1, help="Seconds after which the fetch gives up.")
    ] = DEFAULT_LIMITS.deadline_s,
    connections: Connections = DEFAULT_LIMITS.num_connections,
    host: Annotated[
        str, typer.Option(help="Address of the metrics about the progress.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port of the metrics. Default: they are not served."),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Folder beside that of --into which stays; may be repeated. Others there with a fetched "
            "model are removed after the fetch. Default: all stay.",
        ),
    ] = None,
    credentials: Credentials = None,
    termination_log: TerminationLog = None,
) -> None:
    """Fetch a model into a folder, and print the result as JSON. Exit code 75: it may work later."""
    if cache is not None and node_cache is not None:
        raise typer.BadParameter("--cache and --node-cache cannot be given together")
    limits = FetchLimits(
        deadline_s=deadline_seconds,
        num_connections=connections,
        cache_bytes=cache_limit_bytes,
        hold_s=hold_seconds,
    )
    address = None if port is None else (host, port)
    with ended_by(deadline_seconds, termination_log):
        report = run_fetch(uri, into, cache, limits, credentials, address, node_cache)
    if keep and report["ok"]:
        remove_others(into, keep, say)
    finish(report, termination_log)


def hold(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER...", help="Folders that a fetch has filled.")
    ],
    cache: Annotated[
        Path | None, typer.Option(help="Folder of the cache that the fetch used.")
    ] = None,
    node_cache: NodeCache = None,
) -> None:
    """Keep the models of folders in a cache while an engine serves them, until SIGTERM."""
    used = cache or node_cache
    if used is None or (cache and node_cache):
        raise typer.BadParameter("one of --cache and --node-cache is needed")
    program = "storage.hold" if cache else "node_cache.hold"
    words = [sys.executable, "-P", "-m", f"penstock_engine.sources.{program}"]
    # The holder runs as long as the engine. Without the imports of this process it takes 18 MiB of memory.
    os.execv(sys.executable, [*words, str(used), *map(str, folders)])  # noqa: S606 - a list, never a shell string


def node_cache(
    cache: Annotated[
        Path, typer.Option(help="Folder that this process alone writes. Pods mount it read-only.")
    ],
    allow: Annotated[
        list[str],
        typer.Option(
            metavar="PREFIX",
            help="Beginning of the URIs that are fetched, up to a '/', such as hf://ORG; may be repeated.",
        ),
    ],
    cache_limit_bytes: CacheLimit = None,
    credentials: Credentials = None,
    deadline_seconds: Annotated[
        float, typer.Option(min=1, help="Seconds after which a fetch gives up.")
    ] = DEFAULT_LIMITS.deadline_s,
    connections: Connections = DEFAULT_LIMITS.num_connections,
) -> None:
    """Fetch models for the pods of a node into a folder that they share, until SIGTERM."""
    from penstock_engine.sources.node_cache.allowed import parse_allowed
    from penstock_engine.sources.node_cache.server import (  # imports uvicorn
        NodeCacheServer,
        StartError,
        run_until_signal,
    )

    try:
        allowed = [parse_allowed(text) for text in allow]
    except ValueError as error:
        raise typer.BadParameter(f"--allow: {error}") from error
    os.umask(0o022)  # pods have other users than this process
    limits = FetchLimits(
        deadline_s=deadline_seconds, num_connections=connections, cache_bytes=cache_limit_bytes
    )
    try:
        apply_credentials(credentials, say)
        server = NodeCacheServer(cache, allowed, limits, say, lambda: os._exit(FAILED))
        asyncio.run(run_until_signal(server, cache))
    except (FetchError, StartError) as error:
        say(f"penstock-engine node-cache: {error}")
        raise typer.Exit(FAILED) from error
    except OSError as error:
        problem = os.strerror(error.errno or 0)
        say(
            f"penstock-engine node-cache: {error.filename or cache} cannot be used ({problem}): mount the "
            f"cache writable for user {os.geteuid()}, on a disk of the node"
        )
        raise typer.Exit(FAILED) from error


def report_headers(
    headers: list[str] | None, credentials: Path | None, deadline_s: float
) -> SourcesReport:
    """Fetch the headers that `--headers` names. Raises BadParameter for flags that are wrong."""
    if not headers:
        if credentials is not None:
            raise typer.BadParameter("--credentials needs --headers")
        return SourcesReport()
    if len(headers) > MAX_SOURCES:
        raise typer.BadParameter(f"--headers may be given {MAX_SOURCES} times at most")
    folders = []
    for text in headers:
        folder, separator, uri = text.partition("=")
        if not folder or not separator:
            raise typer.BadParameter("--headers has to be FOLDER=URI")
        folders.append((Path(folder), uri))
    return report_sources(folders, credentials, FetchLimits(deadline_s=deadline_s))


def finish(report: Mapping[str, Any], termination_log: Path | None) -> NoReturn:
    """Print a report, write it to the termination log, and end with its exit code."""
    _write(report, termination_log)
    raise typer.Exit(exit_code(report))


@contextmanager
def ended_by(deadline_s: float, termination_log: Path | None) -> Iterator[None]:
    """End the process if it still runs some time after its deadline.

    A fetch ends by itself, unless it waits within a library for a source that sends a byte now and then.
    """

    def end() -> None:
        report = failure(deadline_exceeded(deadline_s)) | {"remedies": {}}
        _write(report, termination_log)
        sys.stdout.flush()
        os._exit(exit_code(report))

    timer = threading.Timer(hang_time_s(deadline_s), end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _write(report: Mapping[str, Any], termination_log: Path | None) -> None:
    text = termination_text(report)
    typer.echo(text)
    if termination_log is not None:
        termination_log.write_text(text)


def exit_code(report: Mapping[str, Any]) -> int:
    """The exit code of a command with this report."""
    if report["ok"]:
        return SUCCEEDED
    return FAILED_FOR_NOW if report.get("is_retryable") else FAILED
