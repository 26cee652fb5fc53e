"""The steps of a run on a device, in order. Imports no torch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """Step of a run. module: it has a function `items` of a Context.

    weight: share of the time, relative to the other steps'. packages: what it imports besides torch and
    numpy.
    """

    letter: str
    name: str
    module: str
    weight: float
    packages: tuple[str, ...] = ()


MODEL_PACKAGES = ("triton", "safetensors")
TOKEN_PACKAGES = (*MODEL_PACKAGES, "transformers")
START_PACKAGES = (*TOKEN_PACKAGES, "tokenizers", "typer")
SERVER_PACKAGES = (
    "fastapi", "h11", "jinja2", "llguidance", "prometheus_client", "pydantic", "safetensors", "tokenizers",
    "transformers", "triton", "typer", "uvicorn", "yaml",
)  # fmt: skip

# The machine's own figures, which the others are measured against; it is always run. It has time for a
# first import of torch, and what it does not need is the other steps'.
MACHINE = Step("m", "machine", "benchmarks.gpu.machine", 30)
STEPS = (
    Step("a", "kernels", "benchmarks.gpu.kernel_checks", 20, ("triton",)),
    Step("b", "tokens", "benchmarks.gpu.token_checks", 20, TOKEN_PACKAGES),
    Step("c", "attention", "benchmarks.gpu.attention", 18, MODEL_PACKAGES),
    Step("d", "decode", "benchmarks.gpu.decode", 16, MODEL_PACKAGES),
    Step("e", "prefill", "benchmarks.gpu.prefill", 6, MODEL_PACKAGES),
    Step("f", "server", "benchmarks.gpu.server", 20, SERVER_PACKAGES),
    Step("g", "start", "benchmarks.gpu.start", 12, START_PACKAGES),
)
BY_LETTER = {step.letter: step for step in (MACHINE, *STEPS)}


def chosen_steps(only: str) -> list[Step]:
    """The steps of letters separated by commas or spaces, in the run's order; all for an empty text.

    Raises ValueError if a letter is unknown.
    """
    letters = only.replace(",", " ").split()
    known = {step.letter for step in STEPS}
    if unknown := [letter for letter in letters if letter not in known]:
        raise ValueError(
            f"--only has no step {', '.join(unknown)}; the steps are {', '.join(sorted(known))}"
        )
    return [step for step in STEPS if not letters or step.letter in letters]


def seconds_of(step: Step, left: list[Step], time_left_s: float) -> float:
    """The time of a step: its share of what is left. left: the steps not run yet, this one included."""
    return max(0.0, time_left_s) * step.weight / sum(each.weight for each in left)
