"""`penstock calibrate`: measures a running engine and writes a profile for the simulator."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import httpx
import typer
from rich.console import Console

from penstock.calibration.facts import Facts, facts
from penstock.calibration.fit import Fit, fit
from penstock.calibration.probe import ProbeFailed, Prober
from penstock.calibration.sweep import Limits, sweep
from penstock.cli.output.file import require_writable
from penstock.sim.profile import Profile, write


def command(
    url: Annotated[str, typer.Argument(help="URL of one engine, such as http://127.0.0.1:8000.")],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Profile file to write.", callback=require_writable),
    ] = Path("profile.yaml"),
    name: Annotated[
        str | None, typer.Option(help="Name of the profile. Default: the name of the model.")
    ] = None,
    gpu: Annotated[
        str, typer.Option(help="Accelerator that the engine runs on, for quotas and prices.")
    ] = "cpu",
    gpus: Annotated[
        int, typer.Option(min=1, help="Number of accelerators that one engine has.")
    ] = 1,
    gpu_hour_price: Annotated[
        float, typer.Option(min=0, help="Price of one accelerator for an hour.")
    ] = 0.0,
    max_num_seqs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Value of the engine's --max-num-seqs. Default: as the engine reports it."
        ),
    ] = None,
    max_num_batched_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Value of the engine's --max-num-batched-tokens. Default: as the engine reports it.",
        ),
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="PENSTOCK_API_KEY", help="API key of the engine.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random prompts.")] = 0,
) -> None:
    """Measure an idle engine with a short sweep of prompts and batches, and write its profile."""
    console = Console(stderr=True, markup=False)
    try:
        with console.status("reading the engine's model and KV cache size") as status:
            engine, limits, fitted = asyncio.run(
                _measure(
                    url, api_key, max_num_seqs, max_num_batched_tokens, seed,
                    lambda line: status.update(f"measuring {line}"),
                )
            )  # fmt: skip
    except (ProbeFailed, ValueError) as error:
        typer.echo(f"penstock calibrate: {error}", err=True)
        raise typer.Exit(1) from error
    profile = Profile(
        name=name or engine.model,
        source=f"penstock calibrate, {datetime.now(UTC):%Y-%m-%d}: mean error {fitted.error:.1%}",
        gpu=gpu,
        gpus=gpus,
        gpu_hour_price=gpu_hour_price,
        times=fitted.times,
        request_s=fitted.request_s,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        block_size=engine.block_size,
        kv_tokens=engine.kv_tokens,
    )
    output.write_text(write(profile))
    typer.echo(
        f"wrote {output}: {profile.name}, {profile.prefill_tokens_per_s:,.0f} prompt tokens/s, "
        f"mean error of the fitted model {fitted.error:.1%}"
    )
    typer.echo(f"next: penstock simulate --trace FILE --format azure --profile {output}")


async def _measure(
    url: str,
    api_key: str | None,
    max_num_seqs: int | None,
    max_num_batched_tokens: int | None,
    seed: int,
    say: Callable[[str], None],
) -> tuple[Facts, Limits, Fit]:
    """Run the sweep against the engine and fit the model of iteration times to it."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    connect = partial(httpx.AsyncClient, base_url=url, headers=headers, timeout=120)
    async with connect() as client:
        engine = await facts(client)
    limits = Limits.of(engine, max_num_seqs, max_num_batched_tokens)
    # The sweep has one request for each sequence of a batch.
    async with connect(limits=httpx.Limits(max_connections=limits.max_num_seqs)) as client:
        prober = Prober(client, engine.model, seed)
        return engine, limits, fit(await sweep(prober, limits, say))
