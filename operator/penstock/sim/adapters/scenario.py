"""Scenarios of adapters: their popularity, their load times, and the engines that serve them."""

from pydantic import Field, model_validator

from penstock.sim.profile import Profile, Record, profile
from penstock.sim.workload.lengths import LogNormal

# Requests that come before this time, in seconds, are not counted: the pods start empty.
WARM_UP_S = 300.0
# Fewest requests for which a 99th percentile says something.
MIN_REQUESTS = 100


class Adapters(Record):
    """Adapters of one service, its engines, and open-loop requests for the adapters.

    count: number of adapters; their popularity follows Zipf's law with this exponent. shares: in place of
    both, the relative popularity of each adapter. load_s: shortest and longest load, in seconds; each
    adapter has its own, uniform between them. loads_at_once: of one engine, 4 for Penstock's and 1 for vLLM.
    pods, slots: engines, and copies that each has memory for. profile, max_num_seqs: of the engines; 16 slots
    cannot fill larger batches. rps: requests per second for all adapters together. cv: 1 for Poisson
    arrivals, above 1 for Gamma bursts. burst_share: share of the arrivals that start eight requests for one
    adapter. group_size: number of adapters used together, round which a burst goes; 1: no groups. shift_s:
    time after which a fifth of the adapters change their popularity; 0: never. new_share: share of the
    adapters that appear during the run, evenly over its time.
    """

    count: int | None = Field(default=None, ge=1, le=100_000)
    exponent: float = Field(default=1.0, ge=0, le=5)
    shares: tuple[float, ...] = ()
    load_s: tuple[float, float] = (0.1, 1.0)
    loads_at_once: int = Field(default=4, ge=1)
    pods: int = Field(ge=1, le=256)
    slots: int = Field(ge=1)
    profile: str = "llama-3.3-70b-h100-tp4"
    max_num_seqs: int = Field(default=32, ge=1)
    rps: float = Field(gt=0)
    cv: float = Field(default=1.0, gt=0, le=30)
    burst_share: float = Field(default=0.0, ge=0, le=1)
    group_size: int = Field(default=1, ge=1)
    shift_s: float = Field(default=0.0, ge=0)
    new_share: float = Field(default=0.0, ge=0, lt=1)
    # Lengths of a chat: most prompts and answers are some hundred tokens.
    prompt: LogNormal = LogNormal(median=500, p99=4000, max=8000)
    output: LogNormal = LogNormal(median=250, p99=1000, max=2000)

    @model_validator(mode="after")
    def _is_possible(self) -> "Adapters":
        if (self.count is None) == (not self.shares):
            raise ValueError("adapters have either count, with an exponent, or shares")
        if any(share <= 0 for share in self.shares):
            raise ValueError("shares must be above 0")
        if not 0 <= self.load_s[0] <= self.load_s[1]:
            raise ValueError(
                "load_s has the shortest and the longest load time, such as [0.1, 1.0]"
            )
        profile(self.profile)
        return self

    @property
    def engine(self) -> Profile:
        return profile(self.profile).model_copy(update={"max_num_seqs": self.max_num_seqs})

    @property
    def total(self) -> int:
        """Number of adapters."""
        return self.count or len(self.shares)


class AdapterScenario(Record):
    """A simulation of adapters. duration_s: time with arrivals; the first WARM_UP_S do not count."""

    name: str
    description: str = ""
    duration_s: float = Field(default=900.0, gt=WARM_UP_S)
    adapters: Adapters

    @model_validator(mode="after")
    def _has_requests(self) -> "AdapterScenario":
        if self.adapters.rps * (self.duration_s - WARM_UP_S) < MIN_REQUESTS:
            raise ValueError(
                f"fewer than {MIN_REQUESTS} requests after the first {WARM_UP_S:g} s, which do not count: "
                "raise rps or duration_s"
            )
        return self
