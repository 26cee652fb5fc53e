"""Keeps a server of a model with random weights: of the model that was asked for last."""

import shutil
import time
from pathlib import Path

from benchmarks.gpu.context import Context, LeftOut, Record
from benchmarks.gpu.serving.http_server import Server
from benchmarks.gpu.serving.model_folder import make_folder, model_bytes, write_model
from benchmarks.gpu.shapes import config_of

# Flags of the server: the load needs no more, and each further size of a batch has a CUDA graph.
FLAGS = ("--max-model-len", "4096", "--max-num-seqs", "256", "--no-enable-log-requests")
# A model's start until one has been measured: seconds of imports and warm-up, and bytes loaded per second.
START_S, BYTES_PER_S = 20.0, 5e8
END_S = 2.0  # kept for the end of the step


class ModelServers:
    """Starts the server of a model, and ends the one before: a GPU has room for one."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._server: Server | None = None
        self._shape = ""
        self._failed = set[str]()  # shapes whose server has not started
        self._folder: Path | None = None

    def start(self, shape: str, measurement_s: float) -> tuple[Server, Record]:
        """The server of a shape, and the figures of its start; none if it was running before.

        measurement_s: time that has to be left then. Raises LeftOut if it is not, and RuntimeError with
        the end of the log if the server does not start.
        """
        if shape in self._failed:
            raise LeftOut("the server of this model has not started")
        if self._server is not None and self._shape == shape and self._server.is_running():
            return self._server, {}
        self.close()
        config = config_of(shape, is_small=self._context.is_small)
        num_bytes = model_bytes(config)
        self._check_time(START_S + num_bytes / BYTES_PER_S + measurement_s)
        started_s = time.monotonic()
        self._folder = make_folder(num_bytes)
        write_model(self._folder, config, self._context.device, self._context.seed)
        written_s = time.monotonic()
        self._shape = shape
        self._failed.add(shape)
        device = "cuda" if self._context.device == "cuda" else "cpu"
        self._server = Server(
            self._folder, [*FLAGS, "--device", device], self._folder / "server.log"
        )
        self._server.wait_until_ready(self._context.time_left_s() - END_S)
        self._failed.remove(shape)
        return self._server, {
            "write_s": round(written_s - started_s, 3),
            "write_bytes_per_s": round(num_bytes / (written_s - started_s)),
            "start_s": round(time.monotonic() - written_s, 3),
            **self._server.start_phases(),
        }

    def _check_time(self, seconds: float) -> None:
        left_s = self._context.time_left_s()
        if left_s < seconds:
            raise LeftOut(f"it takes about {seconds:.0f} s, and {max(0.0, left_s):.0f} s are left")

    def close(self) -> None:
        """End the server, and remove its files."""
        if self._server is not None:
            self._server.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._server = self._folder = None
