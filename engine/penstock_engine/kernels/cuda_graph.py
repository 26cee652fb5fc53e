"""CUDA graphs: replay all kernel launches of a computation as one launch. Tested only on CUDA."""

from collections.abc import Callable

import torch

Compute = Callable[[], torch.Tensor]


# Records a computation, which reads and writes at fixed addresses, launches the same kernels each time and
# never waits for the device. It runs at least once meanwhile. The result repeats it, and returns the same
# output tensor. Recorded computations run one at a time, and may share memory.
Recorder = Callable[[Compute], Compute]


class GraphRecorder:
    """Records CUDA graphs that share one memory pool, so that a replay overwrites earlier outputs.

    All captures use one stream: a capture reuses memory of the pool only if it was freed on the same
    stream, and cuBLAS keeps a workspace for each stream.
    """

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def __call__(self, compute: Compute) -> Compute:
        """Record a computation. Raises RuntimeError, such as torch.OutOfMemoryError."""
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream())
        # torch.cuda.graph leaves the capture's stream current if the capture fails; this restores the
        # caller's stream.
        with torch.cuda.stream(self._stream):
            # The first run compiles kernels, and loads libraries and their kernels, which differ by
            # size. None of this can be captured.
            compute()
            with torch.cuda.graph(
                graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
            ):
                output = compute()
        torch.cuda.current_stream().wait_stream(self._stream)

        def replay() -> torch.Tensor:
            graph.replay()
            return output

        return replay
