"""Profile of an engine on one kind of GPU: iteration time, KV capacity, start-up time and price.

    T = fixed + prompt_token·P + pair·Σ(chunk·context) + sequence·B + kv_token·KV

with P prompt tokens in chunks, B decoding sequences and the KV tokens that they attend to. The context of a
chunk is that of its middle token. The form is that of the linear fits of Vidur and BLIS. profiles.yaml holds
the rows, each with its source.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field

from penstock_engine.core.scheduler_config import SchedulerConfig


class Record(BaseModel):
    """Base of the immutable models of scenario and profile files; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class IterationTimes(Record):
    """Coefficients in seconds. noise: standard deviation of one iteration, as a fraction of its time."""

    fixed_s: float = Field(gt=0)
    prompt_token_s: float = Field(gt=0)
    pair_s: float = Field(ge=0)
    sequence_s: float = Field(ge=0)
    kv_token_s: float = Field(ge=0)
    noise: float = Field(default=0.0, ge=0, le=0.3)

    def iteration_s(self, prompt_tokens: int, pairs: float, sequences: int, kv: int) -> float:
        return (
            self.fixed_s
            + self.prompt_token_s * prompt_tokens
            + self.pair_s * pairs
            + self.sequence_s * sequences
            + self.kv_token_s * kv
        )


class StartUp(Record):
    """Median duration of each phase of a pod's start, with a log-normal total.

    spread: 84th percentile divided by the median.
    """

    image_s: float = Field(default=10.0, ge=0)
    weights_s: float = Field(default=20.0, ge=0)
    warm_up_s: float = Field(default=70.0, ge=0)
    spread: float = Field(default=1.1, ge=1)

    @property
    def median_s(self) -> float:
        return self.image_s + self.weights_s + self.warm_up_s

    def duration_s(self, normal_draw: float) -> float:
        """Start-up time for a draw from the standard normal distribution."""
        return float(self.median_s * self.spread**normal_draw)

    def with_median(self, median_s: float) -> "StartUp":
        """Copy with the phases scaled to this total."""
        if not self.median_s:
            return self.model_copy(update={"warm_up_s": median_s})
        factor = median_s / self.median_s
        phases = ("image_s", "weights_s", "warm_up_s")
        return self.model_copy(update={p: getattr(self, p) * factor for p in phases})


class Profile(Record):
    """Engine profile. gpus: per replica. gpu_hour_price: of one GPU, in the currency of the source.

    request_s: latency outside iterations, such as the network to the engine and back.
    """

    name: str
    source: str
    gpu: str
    gpus: int = Field(default=1, ge=1)
    gpu_hour_price: float = Field(ge=0)
    times: IterationTimes
    request_s: float = Field(default=0.0, ge=0)
    max_num_seqs: int = Field(default=256, ge=1)
    max_num_batched_tokens: int = Field(default=8192, ge=1)
    block_size: int = Field(default=64, ge=1)
    kv_tokens: int = Field(ge=1)
    start_up: StartUp = StartUp()

    def scheduler(self, prefix_block_tokens: int) -> SchedulerConfig:
        """Scheduler configuration. prefix_block_tokens: unit of shared prefixes; 0 for no sharing."""
        block_size = prefix_block_tokens or self.block_size
        return SchedulerConfig(
            max_num_seqs=min(self.max_num_seqs, self.max_num_batched_tokens),
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_model_len=self.kv_tokens,
            block_size=block_size,
            num_blocks=max(1, self.kv_tokens // block_size),
            prefix_caching=bool(prefix_block_tokens),
            max_num_queued_seqs=1_000_000,
        )

    @property
    def prefill_tokens_per_s(self) -> float:
        """Prefill throughput with full chunks and a half-full KV cache."""
        chunk = self.max_num_batched_tokens
        sequences = min(self.max_num_seqs, 64)
        return chunk / self.times.iteration_s(
            chunk, chunk * chunk / 2, sequences, self.kv_tokens // 2
        )


@cache
def profiles() -> Mapping[str, Profile]:
    """Profiles shipped with Penstock, by name."""
    return _read(files("penstock.sim").joinpath("profiles.yaml").read_text())


@cache
def profile(wanted: str) -> Profile:
    """Profile by shipped name, or from a YAML file that `penstock calibrate` wrote. Raises ValueError."""
    if wanted in profiles():
        return profiles()[wanted]
    if not wanted.endswith((".yaml", ".yml")):
        raise ValueError(
            f"no profile {wanted!r}; there are: {', '.join(profiles())}, or the path of a .yaml file"
        )
    try:
        found = _read(Path(wanted).read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ValueError(f"profile {wanted}: {error}") from error
    if len(found) != 1:
        raise ValueError(f"{wanted} holds {len(found)} profiles; leave the one that is meant")
    return next(iter(found.values()))


def write(profile: Profile) -> str:
    """YAML text of a profile file with this one profile."""
    row = profile.model_dump(mode="json", exclude_unset=True)
    return yaml.safe_dump({row.pop("name"): row}, sort_keys=False)


def _read(text: str) -> dict[str, Profile]:
    rows = yaml.safe_load(text)
    if not isinstance(rows, dict) or not all(isinstance(row, dict) for row in rows.values()):
        raise ValueError("profiles are rows of the form `name: {gpu: ..., times: {...}, ...}`")
    return {str(name): Profile(name=str(name), **row) for name, row in rows.items()}
