"""Command line of the engine: serve, preflight, fetch, hold, node-cache, convert, make-model, make-adapters.

Flags have vLLM's names if it has them. Commands import large packages when they run, so that errors of the
command line appear at once.
"""

import asyncio
import gc
import inspect
import json
import sys
import time
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, replace
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_type_hints

import typer
from typer.exceptions import TyperException

from penstock_engine.core.errors import ModelError
from penstock_engine.files.file_access import refusing_unreadable_files
from penstock_engine.machine.termination import end_at_sigterm
from penstock_engine.memory.model_files import check_model
from penstock_engine.memory.preflight import Scope, bad_arguments, find_model, refusal
from penstock_engine.memory.preflight import preflight as judge
from penstock_engine.options.command_line import translate_vllm_args
from penstock_engine.options.config import EngineConfig
from penstock_engine.options.serve_options import ServeOptions
from penstock_engine.server.startup import StartupTimer
from penstock_engine.sources.command import (
    Credentials,
    Headers,
    TerminationLog,
    ended_by,
    fetch,
    finish,
    hold,
    node_cache,
    report_headers,
)
from penstock_engine.telemetry import logs

STARTED_S = time.monotonic()

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Logs and termination messages of pods are plain text.
    rich_markup_mode="rich" if sys.stderr.isatty() else None,
)

ModelDir = Annotated[Path, typer.Argument(help="Folder with the model, or a GGUF file.")]

Command = Callable[..., None]

NO_OPTIONS = ServeOptions()
GENERATION_FILE = "generation_config.json"


def main() -> None:
    is_preflight = sys.argv[1:2] == ["preflight"]
    try:
        words = translate_vllm_args(sys.argv[1:])
    except ValueError as error:
        _refuse_arguments(str(error)) if is_preflight else sys.exit(f"penstock-engine: {error}")
    if words and words[0].startswith("-") and words[0] != "--help":
        sys.exit(
            f"penstock-engine: the first argument has to be a command, such as serve, not {words[0]}; "
            "the args of a container replace all of its arguments"
        )
    if words[:1] in (["fetch"], ["preflight"], ["node-cache"]):
        end_at_sigterm()
    if not is_preflight:
        app(args=words)
    try:
        sys.exit(app(args=words, standalone_mode=False))
    except TyperException as error:
        _refuse_arguments(error.format_message())


def _refuse_arguments(message: str) -> NoReturn:
    """End a preflight that cannot read its arguments. Kubernetes takes the verdict from the log."""
    typer.echo(json.dumps(bad_arguments(message)))
    sys.exit(1)


def with_flags(*kinds: type) -> Callable[[Command], Command]:
    """Decorator that adds an option to a command for each field of the dataclasses with a default."""

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command)
        parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        for kind in kinds:
            hints = get_type_hints(kind, include_extras=True)
            parameters += [_option(entry, hints[entry.name]) for entry in fields(kind)]
        parameters = [p for p in parameters if p.default is not MISSING]
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return command

    return decorate


def _option(entry: Field[Any], hint: Any) -> inspect.Parameter:
    factory = entry.default_factory
    default = entry.default if factory is MISSING else factory()
    return inspect.Parameter(
        entry.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint
    )


def _configuration(model: Path, flags: dict[str, Any]) -> tuple[EngineConfig, ServeOptions]:
    config = EngineConfig(model_dir=model, **_select_fields(EngineConfig, flags))
    options = ServeOptions(**_select_fields(ServeOptions, flags))
    if options.lora_modules and not config.enable_lora:
        raise typer.BadParameter("--lora-modules needs --enable-lora")
    return config, options


def _check_options(config: EngineConfig, options: ServeOptions) -> None:
    """Raise ModelError, or OSError, if the server's flags cannot be followed."""
    names = (
        "chat_template", "default_chat_template_kwargs", "generation_config", "lora_modules",
        "override_generation_config",
    )  # fmt: skip
    has_defaults = (config.model_dir / GENERATION_FILE).is_file()
    if options.chat_template is None:
        from penstock_engine.text.template import check_own_templates  # imports jinja2

        check_own_templates(config.tokenizer_dir)
    if has_defaults or any(getattr(options, n) != getattr(NO_OPTIONS, n) for n in names):
        from penstock_engine.server.option_checks import check_options  # takes a second

        check_options(config, options)


def _select_fields(kind: type, flags: dict[str, Any]) -> dict[str, Any]:
    return {entry.name: flags[entry.name] for entry in fields(kind) if entry.name in flags}


def _name(model: Path) -> str:
    place = model.resolve()
    return place.stem if place.is_file() else place.name


@app.command()
@with_flags(ServeOptions, EngineConfig)
def serve(model: ModelDir, **flags: Any) -> None:
    """Serve a model over HTTP."""
    config, options = _configuration(model, flags)
    if not options.served_model_names:
        options = replace(options, served_model_names=[_name(model)])
    logs.configure(options.log_format, options.log_level)
    try:
        with refusing_unreadable_files():
            # Before the seconds that the next import takes.
            check_model(model, tokenizer_dir=config.tokenizer_dir)
            gc.disable()  # what is imported stays: to look for cycles in it takes a third of them
            from penstock_engine.server.serve import serve as run

            gc.freeze()
            gc.enable()
            asyncio.run(run(config, options, StartupTimer(STARTED_S, time.monotonic)))
    except ModelError as error:
        typer.echo(f"{error.reason}: {error} ({model})", err=True)
        raise typer.Exit(1) from error


@app.command()
@with_flags(ServeOptions, EngineConfig)
def preflight(
    model: ModelDir,
    memory_limit_bytes: Annotated[
        int | None,
        typer.Option(
            min=1,
            envvar="PENSTOCK_MEMORY_LIMIT_BYTES",
            help="Memory of the engine in bytes. Default: the memory limit of this process.",
        ),
    ] = None,
    accelerator_memory_bytes: Annotated[
        int | None,
        typer.Option(
            min=1,
            envvar="PENSTOCK_ACCELERATOR_MEMORY_BYTES",
            help=(
                "Memory of each GPU in bytes, for --device cuda. Default: unknown, so that memory is "
                "not checked."
            ),
        ),
    ] = None,
    scope: Annotated[
        Scope,
        typer.Option(
            help="What is checked. model: all that this engine needs. files, folder: that another "
            "program finds a config.json, or only a folder."
        ),
    ] = "model",
    headers: Headers = None,
    credentials: Credentials = None,
    deadline_seconds: Annotated[
        float, typer.Option(min=1, help="Seconds after which reading --headers gives up.")
    ] = 600,
    termination_log: TerminationLog = None,
    **flags: Any,
) -> None:
    """Print as JSON whether a model can be served with these flags, without loading it."""
    config, options = _configuration(model, flags)
    with ended_by(deadline_seconds, termination_log):
        sources = report_headers(headers, credentials, deadline_seconds)
    verdict = sources.verdict
    try:
        with refusing_unreadable_files():
            if verdict is None and scope == "model":
                verdict = judge(
                    config,
                    memory_limit_bytes=memory_limit_bytes,
                    accelerator_memory_bytes=accelerator_memory_bytes,
                )
                if verdict["ok"]:
                    _check_options(config, options)
            elif verdict is None:
                verdict = find_model(model, scope)
    except ModelError as error:
        verdict = refusal(error, model)
    finish(verdict | sources.entry, termination_log)


app.command()(fetch)
app.command()(hold)
app.command()(node_cache)


@app.command()
def convert(
    gguf: Annotated[Path, typer.Argument(help="GGUF file, or a folder with one.")],
    out: Annotated[Path, typer.Argument(help="Folder to create.")],
) -> None:
    """Convert a GGUF file to a safetensors checkpoint in bfloat16, which loads faster."""
    from penstock_engine.checkpoints.gguf.conversion import convert as convert_file
    from penstock_engine.checkpoints.gguf.file import find_gguf

    try:
        with refusing_unreadable_files():
            path = find_gguf(gguf)
            if path is None:
                raise ModelError("ModelNotFound", f"{gguf} holds no GGUF file to convert")
            convert_file(path, out)
    except ModelError as error:
        typer.echo(f"{error.reason}: {error}", err=True)
        raise typer.Exit(1) from error


@app.command()
def make_model(
    out: Annotated[Path, typer.Argument(help="Folder to create.")],
    docs: Annotated[
        list[Path],
        typer.Option(help="File or folder with texts to train on; may be repeated."),
    ],
    seconds: Annotated[float, typer.Option(help="Duration of the training in seconds.")] = 60,
    steps: Annotated[
        int | None, typer.Option(help="Number of training steps, instead of --seconds.")
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of the initial weights and of the order of texts.")
    ] = 0,
) -> None:
    """Train a small model on the given texts."""
    from penstock_engine.make_model.make import make

    try:
        make(out, docs, seconds=seconds, steps=steps, seed=seed)
    except ValueError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error


@app.command()
def make_adapters(
    model: ModelDir,
    out: Annotated[Path, typer.Argument(help="Folder to make the adapters' folders in.")],
    count: Annotated[int, typer.Option(help="Number of adapters.")] = 1,
    rank: Annotated[int, typer.Option(help="Rank of the adapters.")] = 8,
    seed: Annotated[int, typer.Option(help="Seed of the random factors.")] = 0,
) -> None:
    """Make random LoRA adapters for a model, each with other answers, for demos and tests."""
    from penstock_engine.make_model.adapters import make_adapters as make

    try:
        with refusing_unreadable_files():
            make(model, out, count, rank=rank, seed=seed)
    except (ModelError, ValueError, FileExistsError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
