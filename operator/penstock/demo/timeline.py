"""Samples and marks of the demo over time, and their plot."""

from dataclasses import dataclass, field
from pathlib import Path

from penstock.clients.machine.pyplot import pyplot


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of the cluster `at_s` seconds after the start of the demo."""

    at_s: float
    in_flight: int
    kv_usage: float | None  # mean over the engines that answered; None when none did
    ready: int
    desired: int


@dataclass(slots=True)
class Timeline:
    """Samples and labeled times of a demo."""

    samples: list[Sample] = field(default_factory=list)
    marks: list[tuple[float, str]] = field(default_factory=list)

    def plot(self, path: Path) -> None:
        """Plot load, KV use and replicas on one time axis to an image file."""
        plt = pyplot()

        at = [s.at_s for s in self.samples]
        figure, (load, kv, replicas) = plt.subplots(
            3, 1, sharex=True, figsize=(10, 5.5), layout="constrained"
        )
        load.fill_between(at, [s.in_flight for s in self.samples], color="#4c78a8", alpha=0.6)
        load.set_ylabel("requests in flight")
        used = [float("nan") if s.kv_usage is None else s.kv_usage * 100 for s in self.samples]
        kv.plot(at, used, color="#e45756")
        kv.set_ylim(0, 105)
        kv.set_ylabel("KV use, mean %")
        replicas.step(at, [s.desired for s in self.samples], where="post", ls="--", label="desired")
        replicas.step(at, [s.ready for s in self.samples], where="post", label="ready")
        replicas.set_ylim(bottom=0)
        replicas.set_ylabel("replicas")
        replicas.yaxis.get_major_locator().set_params(integer=True)
        replicas.set_xlabel("seconds")
        replicas.legend(loc="upper right")
        for second, text in self.marks:
            for axes in (load, kv, replicas):
                axes.axvline(second, color="#888", lw=0.8, ls=":")
            load.annotate(
                text, (second, 1), xycoords=("data", "axes fraction"), fontsize=9,
                va="bottom",
            )  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110)
        plt.close(figure)
