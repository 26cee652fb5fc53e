"""`penstock-engine`: serve, preflight, make-model. Flags carry vLLM's names where it has them."""

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from penstock_engine.config import EngineConfig
from penstock_engine.core.errors import ModelError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

ModelDir = Annotated[Path, typer.Argument(help="The model's folder.")]
MaxModelLen = Annotated[int | None, typer.Option(min=2, help="Tokens of one request at most.")]
MaxNumSeqs = Annotated[int, typer.Option(min=1, help="Requests that run at once.")]
MaxBatched = Annotated[int, typer.Option(min=1, help="Token budget of one step.")]
BlockSize = Annotated[int, typer.Option(min=1, help="Tokens in a block of the KV cache.")]
Blocks = Annotated[int | None, typer.Option(min=1, help="Number of blocks, instead of a size.")]
KVBytes = Annotated[int | None, typer.Option(min=1, help="Bytes of the KV cache.")]
Utilization = Annotated[float, typer.Option(min=0.01, max=1, help="Part of the memory to use.")]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")]
Prefix = Annotated[bool, typer.Option(help="Share blocks between requests that begin alike.")]
Seed = Annotated[int, typer.Option(help="For requests without a seed of their own.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]


def main() -> None:
    app()


def _config(
    model: Path, max_model_len: int | None, max_num_seqs: int, max_num_batched_tokens: int,
    block_size: int, num_gpu_blocks_override: int | None, kv_cache_memory_bytes: int | None,
    gpu_memory_utilization: float, dtype: str, enable_prefix_caching: bool, seed: int, device: str,
) -> EngineConfig:  # fmt: skip
    for name, value, allowed in (
        ("--dtype", dtype, ("auto", "float32", "bfloat16", "float16")),
        ("--device", device, ("auto", "cpu", "cuda")),
    ):
        if value not in allowed:
            raise typer.BadParameter(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
    return EngineConfig(
        model_dir=model, max_model_len=max_model_len, max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens, block_size=block_size,
        num_gpu_blocks_override=num_gpu_blocks_override,
        kv_cache_memory_bytes=kv_cache_memory_bytes,
        gpu_memory_utilization=gpu_memory_utilization, dtype=dtype,
        enable_prefix_caching=enable_prefix_caching, seed=seed, device=device,
    )  # fmt: skip


@app.command()
def serve(
    model: ModelDir,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on.")] = 8000,
    served_model_name: Annotated[str, typer.Option(help="What clients send as `model`.")] = "",
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="PENSTOCK_ENGINE_API_KEY", help="Demanded of clients, as a bearer token."
        ),
    ] = None,
    shutdown_timeout: Annotated[
        float, typer.Option(min=0, help="Seconds that running requests get after SIGTERM.")
    ] = 30,
    max_model_len: MaxModelLen = None,
    max_num_seqs: MaxNumSeqs = 64,
    max_num_batched_tokens: MaxBatched = 512,
    block_size: BlockSize = 16,
    num_gpu_blocks_override: Blocks = None,
    kv_cache_memory_bytes: KVBytes = None,
    gpu_memory_utilization: Utilization = 0.9,
    dtype: Dtype = "auto",
    enable_prefix_caching: Prefix = True,
    seed: Seed = 0,
    device: Device = "auto",
) -> None:
    """Serve a model over HTTP."""
    config = _config(
        model, max_model_len, max_num_seqs, max_num_batched_tokens, block_size,
        num_gpu_blocks_override, kv_cache_memory_bytes, gpu_memory_utilization, dtype,
        enable_prefix_caching, seed, device,
    )  # fmt: skip
    from penstock_engine.server.serve import ServeOptions
    from penstock_engine.server.serve import serve as run

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    name = served_model_name or model.resolve().name
    try:
        asyncio.run(run(config, ServeOptions(host, port, name, api_key, shutdown_timeout)))
    except ModelError as error:
        typer.echo(f"{error.reason}: {error}", err=True)
        raise typer.Exit(1) from error


@app.command()
def preflight(
    model: ModelDir,
    memory_limit_bytes: Annotated[
        int | None, typer.Option(help="The engine's memory, instead of this process's limit.")
    ] = None,
    termination_log: Annotated[
        Path | None, typer.Option(help="Write the verdict here too.")
    ] = None,
    max_model_len: MaxModelLen = None,
    max_num_seqs: MaxNumSeqs = 64,
    max_num_batched_tokens: MaxBatched = 512,
    block_size: BlockSize = 16,
    num_gpu_blocks_override: Blocks = None,
    kv_cache_memory_bytes: KVBytes = None,
    gpu_memory_utilization: Utilization = 0.9,
    dtype: Dtype = "auto",
    enable_prefix_caching: Prefix = True,
    seed: Seed = 0,
    device: Device = "auto",
) -> None:
    """Say whether a model can be served like this, without loading it."""
    config = _config(
        model, max_model_len, max_num_seqs, max_num_batched_tokens, block_size,
        num_gpu_blocks_override, kv_cache_memory_bytes, gpu_memory_utilization, dtype,
        enable_prefix_caching, seed, device,
    )  # fmt: skip
    from penstock_engine.preflight import preflight as look

    if memory_limit_bytes is not None:
        os.environ["PENSTOCK_MEMORY_LIMIT_BYTES"] = str(memory_limit_bytes)
    verdict = look(config)
    text = json.dumps(verdict)
    typer.echo(text)
    if termination_log is not None:
        termination_log.write_text(text)
    raise typer.Exit(0 if verdict["ok"] else 1)


@app.command()
def make_model(
    out: Annotated[Path, typer.Argument(help="The folder to make.")],
    docs: Annotated[list[Path], typer.Option(help="Texts to learn from: files or folders.")],
    seconds: Annotated[float, typer.Option(help="How long to train.")] = 60,
    steps: Annotated[int | None, typer.Option(help="Train this many steps instead.")] = None,
    seed: Seed = 0,
) -> None:
    """Make a small model that speaks like the given texts."""
    from penstock_engine.make_model.make import make

    try:
        make(out, docs, seconds=seconds, steps=steps, seed=seed)
    except ValueError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
