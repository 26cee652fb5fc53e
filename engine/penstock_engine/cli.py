"""`penstock-engine`: serve, preflight, make-model. Flags carry vLLM's names where it has them.

Everything heavy is imported inside the commands.
"""

import asyncio
import json
import logging
from pathlib import Path
from typing import Annotated, Literal

import typer

from penstock_engine.config import EngineConfig, ServeOptions
from penstock_engine.core.errors import ModelError
from penstock_engine.core.speculation import SpeculationConfig
from penstock_engine.preflight import check_model
from penstock_engine.preflight import preflight as judge

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

ModelDir = Annotated[Path, typer.Argument(help="The model's folder.")]
MaxModelLen = Annotated[int | None, typer.Option(min=2, help="Tokens of one request at most.")]
MaxNumSeqs = Annotated[int, typer.Option(min=1, help="Requests that run at once.")]
MaxBatched = Annotated[int, typer.Option(min=1, help="Token budget of one step.")]
BlockSize = Annotated[int, typer.Option(min=1, max=1024, help="Tokens in a block of KV cache.")]
Blocks = Annotated[int | None, typer.Option(min=1, help="Number of blocks, instead of a size.")]
KVBytes = Annotated[int | None, typer.Option(min=1, help="Bytes of the KV cache.")]
Utilization = Annotated[float, typer.Option(min=0.01, max=1, help="Part of the memory to use.")]
Prefix = Annotated[bool, typer.Option(help="Share blocks between requests that begin alike.")]
Seed = Annotated[int, typer.Option(help="For what is drawn without a seed of its own.")]
Dtype = Annotated[
    Literal["auto", "float32", "bfloat16", "float16"], typer.Option(help="Of weights and KV cache.")
]
Device = Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Where to compute.")]
Tensor = Annotated[int, typer.Option(min=1, max=64, help="Processes that share each layer.")]
Pipeline = Annotated[int, typer.Option(min=1, max=64, help="Stages of layers.")]
Experts = Annotated[bool, typer.Option(help="Share experts out whole, instead of their width.")]


def _speculation(text: str) -> SpeculationConfig:
    """vLLM's JSON. Raises typer.BadParameter, which says what is wrong."""
    try:
        return SpeculationConfig(**json.loads(text))
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(str(error)) from error


Speculative = Annotated[
    SpeculationConfig | None,
    typer.Option(
        parser=_speculation,
        metavar="JSON",
        help='{"method": "ngram" | "suffix" | "draft_model", "num_speculative_tokens": 4, ...}',
    ),
]


def main() -> None:
    app()


@app.command()
def serve(
    model: ModelDir,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on.")] = 8000,
    served_model_name: Annotated[str, typer.Option(help="What clients send as `model`.")] = "",
    api_key: Annotated[
        str | None,
        typer.Option(envvar="PENSTOCK_ENGINE_API_KEY", help="Asked of clients, as a bearer token."),
    ] = None,
    shutdown_timeout: Annotated[
        float, typer.Option(min=0, help="Seconds that running requests get after SIGTERM.")
    ] = 30,
    max_num_queued_reqs: Annotated[
        int, typer.Option(min=1, help="Requests that wait; beyond them the answer is 503.")
    ] = 1024,
    max_model_len: MaxModelLen = None,
    max_num_seqs: MaxNumSeqs = 64,
    max_num_batched_tokens: MaxBatched = 512,
    block_size: BlockSize = 16,
    num_gpu_blocks_override: Blocks = None,
    kv_cache_memory_bytes: KVBytes = None,
    gpu_memory_utilization: Utilization = 0.9,
    dtype: Dtype = "auto",
    enable_prefix_caching: Prefix = True,
    speculative_config: Speculative = None,
    seed: Seed = 0,
    device: Device = "auto",
    tensor_parallel_size: Tensor = 1,
    pipeline_parallel_size: Pipeline = 1,
    enable_expert_parallel: Experts = False,
) -> None:
    """Serve a model over HTTP."""
    config = EngineConfig(
        model_dir=model, max_model_len=max_model_len, max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens, max_num_queued_reqs=max_num_queued_reqs,
        block_size=block_size, num_gpu_blocks_override=num_gpu_blocks_override,
        kv_cache_memory_bytes=kv_cache_memory_bytes,
        gpu_memory_utilization=gpu_memory_utilization, dtype=dtype,
        enable_prefix_caching=enable_prefix_caching, speculative_config=speculative_config,
        seed=seed, device=device, tensor_parallel_size=tensor_parallel_size,
        pipeline_parallel_size=pipeline_parallel_size,
        enable_expert_parallel=enable_expert_parallel,
    )  # fmt: skip
    options = ServeOptions(
        host=host, port=port, served_model_name=served_model_name or model.resolve().name,
        api_key=api_key or None, shutdown_timeout_s=shutdown_timeout,
    )  # fmt: skip
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        check_model(model)  # before the seconds that the next import takes
        from penstock_engine.server.serve import serve as run

        asyncio.run(run(config, options))
    except ModelError as error:
        typer.echo(f"{error.reason}: {error}", err=True)
        raise typer.Exit(1) from error


@app.command()
def preflight(
    model: ModelDir,
    memory_limit_bytes: Annotated[
        int | None,
        typer.Option(min=1, help="The engine's memory; else the limit of this process."),
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
    speculative_config: Speculative = None,
    seed: Seed = 0,
    device: Device = "auto",
    tensor_parallel_size: Tensor = 1,
    pipeline_parallel_size: Pipeline = 1,
    enable_expert_parallel: Experts = False,
) -> None:
    """Say as JSON whether a model can be served like this, without loading it."""
    config = EngineConfig(
        model_dir=model, max_model_len=max_model_len, max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens, block_size=block_size,
        num_gpu_blocks_override=num_gpu_blocks_override,
        kv_cache_memory_bytes=kv_cache_memory_bytes,
        gpu_memory_utilization=gpu_memory_utilization, dtype=dtype,
        enable_prefix_caching=enable_prefix_caching, speculative_config=speculative_config,
        seed=seed, device=device, tensor_parallel_size=tensor_parallel_size,
        pipeline_parallel_size=pipeline_parallel_size,
        enable_expert_parallel=enable_expert_parallel,
    )  # fmt: skip
    verdict = judge(config, memory_limit_bytes=memory_limit_bytes)
    text = json.dumps(verdict)
    typer.echo(text)
    if termination_log is not None:
        termination_log.write_text(text)
    raise typer.Exit(0 if verdict["ok"] else 1)


@app.command()
def make_model(
    out: Annotated[Path, typer.Argument(help="The folder to make.")],
    docs: Annotated[
        list[Path], typer.Option(help="Texts to learn from: a file or a folder; may be repeated.")
    ],
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
