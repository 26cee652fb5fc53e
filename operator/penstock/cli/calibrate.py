"""`penstock calibrate`: measures a running engine, for the simulator to go by."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import httpx
import typer
from rich.console import Console

from penstock.api.v1alpha1 import Engine
from penstock.calibration.facts import Facts, facts
from penstock.calibration.fit import Fit, fit
from penstock.calibration.probe import ProbeFailed, Prober
from penstock.calibration.sweep import Limits, sweep
from penstock.cli.output_file import writable
from penstock.sim.profile import Profile, write

DEFAULTS = Engine()


def command(
    url: Annotated[str, typer.Argument(help="Of one engine, such as http://127.0.0.1:8000.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The profile to write.", callback=writable)
    ] = Path("profile.yaml"),
    name: Annotated[str | None, typer.Option(help="Of the profile; the model's otherwise.")] = None,
    gpu: Annotated[str, typer.Option(help="What it runs on, for quotas and prices.")] = "cpu",
    gpus: Annotated[int, typer.Option(min=1, help="How many of it one engine has.")] = 1,
    gpu_hour_price: Annotated[float, typer.Option(min=0)] = 0.0,
    max_num_seqs: Annotated[
        int, typer.Option(min=1, help="As the engine was started.")
    ] = DEFAULTS.max_num_seqs,
    max_num_batched_tokens: Annotated[
        int, typer.Option(min=1, help="As the engine was started.")
    ] = DEFAULTS.max_num_batched_tokens,
    api_key: Annotated[str | None, typer.Option(envvar="PENSTOCK_API_KEY")] = None,
    seed: Annotated[int, typer.Option(help="Of the random prompts.")] = 0,
) -> None:
    """A short sweep of prompts and batches against an idle engine; writes a simulator's profile."""
    console = Console(stderr=True, markup=False)
    try:
        with console.status("asking the engine what it is") as status:
            said, fitted = asyncio.run(
                _measure(
                    url, api_key, max_num_seqs, max_num_batched_tokens, seed,
                    lambda line: status.update(f"measuring {line}"),
                )
            )  # fmt: skip
    except (ProbeFailed, ValueError) as error:
        typer.echo(f"penstock calibrate: {error}", err=True)
        raise typer.Exit(1) from error
    made = Profile(
        name=name or said.model,
        source=f"penstock calibrate, {datetime.now(UTC):%Y-%m-%d}: mean error {fitted.error:.1%}",
        gpu=gpu,
        gpus=gpus,
        gpu_hour_price=gpu_hour_price,
        times=fitted.times,
        request_s=fitted.request_s,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        block_size=said.block_size,
        kv_tokens=said.kv_tokens,
    )
    output.write_text(write(made))
    typer.echo(
        f"{output}: {made.name}, {made.prefill_tokens_per_s:,.0f} prompt tokens/s; the model"
    )
    typer.echo(f"is off by {fitted.error:.1%} of a sample's time on average")
    typer.echo(f"next: penstock simulate --trace FILE --format azure --profile {output}")


async def _measure(
    url: str,
    api_key: str | None,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    seed: int,
    say: Callable[[str], None],
) -> tuple[Facts, Fit]:
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(
        base_url=url, headers=headers, timeout=120, limits=limits
    ) as client:
        said = await facts(client)
        prober = Prober(client, said.model, seed)
        what = Limits(said.max_model_len, max_num_seqs, max_num_batched_tokens, said.kv_tokens)
        return said, fit(await sweep(prober, what, say))
