"""CUDA graphs: replay all kernel launches of a computation as one launch. Tested only on CUDA."""

from collections.abc import Callable

import torch

Compute = Callable[[], torch.Tensor]


# Records a computation, which reads and writes at fixed addresses, launches the same kernels each time and
# never waits for the device. It runs at least once meanwhile. The result repeats it, and returns the same
# output tensor. Recorded computations run one at a time, and may share memory.
Recorder = Callable[[Compute], Compute]


class GraphRecorder:
    """Records CUDA graphs that share one memory pool, so that a replay overwrites earlier outputs."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, compute: Compute) -> Compute:
        # The first run compiles kernels and loads libraries, which cannot be captured. It uses the
        # stream of the capture, because torch keeps workspaces by stream.
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
