"""The kernels that some work launches, by torch's profiler."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.gpu.context import Record
from benchmarks.gpu.timing import check_device
from torch.profiler import ProfilerActivity, profile

NUM_TOP = 12
MAX_NAME = 100  # names of templates are longer


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel or a copy on the device, with its times in microseconds."""

    name: str
    start_us: float
    end_us: float


def profile_launches(work: Callable[[], object], device: str) -> list[Launch]:
    """Run work that ends by waiting for the device, and return what it ran there; torch's own
    operations on the CPU."""
    is_cuda = device == "cuda"
    activity = ProfilerActivity.CUDA if is_cuda else ProfilerActivity.CPU
    with profile(activities=[activity], acc_events=True) as profiler:
        work()
    return [
        Launch(event.name, event.time_range.start, event.time_range.end)
        for event in profiler.events() or ()
        if event.device_type.name == activity.name and not event.is_user_annotation
    ]


def profile_steps(work: Callable[[], object], device: str, num_steps: int) -> Record:
    """Figures of one of the num_steps steps that some work runs; why, if they cannot be profiled."""
    try:
        launches = profile_launches(work, device)
    except Exception as error:  # noqa: BLE001 - a fault of the profiler is none of the engine
        check_device(device)
        return {"not_profiled": f"{type(error).__name__}: {error}"[:300]}
    return describe_launches(launches, num_steps)


def describe_launches(launches: Sequence[Launch], num_steps: int) -> Record:
    """Figures of one of num_steps steps: number of kernels, their time, gaps, and the largest ones.

    kernels_s: sum of the kernels' times. busy_s: time with a kernel running. span_s: from the first
    kernel to the end of the last, of all steps, divided by their number.
    """
    if not launches:
        return {"kernels_per_step": 0}
    seconds: defaultdict[str, float] = defaultdict(float)
    counts: defaultdict[str, int] = defaultdict(int)
    for each in launches:
        seconds[each.name[:MAX_NAME]] += (each.end_us - each.start_us) / 1e6
        counts[each.name[:MAX_NAME]] += 1
    largest = sorted(seconds, key=lambda name: -seconds[name])[:NUM_TOP]
    first_us, last_us = min(x.start_us for x in launches), max(x.end_us for x in launches)
    return {
        "kernels_per_step": len(launches) / num_steps,
        "kernels_s": sum(seconds.values()) / num_steps,
        "busy_s": _busy_us(launches) / 1e6 / num_steps,
        "span_s": (last_us - first_us) / 1e6 / num_steps,
        "top_kernels": [
            {
                "name": name,
                "seconds": seconds[name] / num_steps,
                "launches": counts[name] / num_steps,
            }
            for name in largest
        ],
    }


def _busy_us(launches: Iterable[Launch]) -> float:
    """Length of the union of the launches' times."""
    busy_us, until_us = 0.0, float("-inf")
    for each in sorted(launches, key=lambda launch: launch.start_us):
        busy_us += max(0.0, each.end_us - max(each.start_us, until_us))
        until_us = max(until_us, each.end_us)
    return busy_us
