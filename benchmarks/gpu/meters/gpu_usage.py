"""Samples the share of time in which a GPU runs a kernel, by NVML. Imports no torch."""

import statistics
import threading
from importlib import import_module
from types import TracebackType
from typing import Any, Self

SAMPLE_S = 0.1
# NVML's value is of a period of up to a second before the call: the first ones are of the time before.
SETTLING_SAMPLES = 10


class GpuUsage:
    """Samples in the background while a block runs. Coarse: NVML says in how much of the last 1/6 to 1 s."""

    def __init__(self, index: int = 0) -> None:
        self._index = index
        self._samples: list[float] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._done.set()
        self._thread.join(5 * SAMPLE_S)

    def share(self) -> float | None:
        """Mean share, 0 to 1; None if NVML gave none, or the block was too short."""
        settled = self._samples[SETTLING_SAMPLES:]
        return statistics.fmean(settled) if settled else None

    def _sample(self) -> None:
        try:
            nvml: Any = import_module("pynvml")  # of the package nvidia-ml-py
            nvml.nvmlInit()
            device = nvml.nvmlDeviceGetHandleByIndex(self._index)
            while not self._done.wait(SAMPLE_S):
                self._samples.append(nvml.nvmlDeviceGetUtilizationRates(device).gpu / 100)
        except Exception:  # noqa: BLE001 - without a driver, a library or the right; share() is None then
            return
