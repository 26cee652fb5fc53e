"""CUDA graphs: all launches of a computation as one. Exercised only on CUDA."""

from collections.abc import Callable
from typing import Protocol

import torch

Compute = Callable[[], torch.Tensor]


class Recorder(Protocol):
    """Of computations that run one at a time, and may share memory."""

    def __call__(self, compute: Compute) -> Compute:
        """The same, from the numbers that its inputs have by then, into the same output.

        compute: reads and writes at fixed addresses, launches the same kernels each time, and
        never waits for the device. It is run at once, perhaps more than once.
        """
        ...


class GraphRecorder:
    """One memory pool for all graphs: what one left behind, the next one overwrites."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, compute: Compute) -> Compute:
        # The first run compiles kernels and loads libraries, which cannot be captured. It is on
        # another stream, as the capture will be: torch keeps workspaces by stream.
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            compute()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(
            graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"
        ):
            output = compute()

        def replay() -> torch.Tensor:
            graph.replay()
            return output

        return replay
