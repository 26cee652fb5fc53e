"""Starts an engine for a benchmark, with a small random model, one core and a free port."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psutil
from aiohttp.test_utils import unused_port

from penstock_engine.make_model.make import make

ROOT = Path(__file__).parents[2]
COMMAND = Path(sys.executable).with_name("penstock-engine")
START_TIMEOUT_S = 120


@contextmanager
def engine(
    *flags: str, prepare: Callable[[Path], Sequence[str]] = lambda _: ()
) -> Iterator[tuple[str, psutil.Process]]:
    """Run an engine. Yields its URL and process once it is ready.

    prepare: changes the model folder and returns further flags. Raises RuntimeError with the log if the
    engine does not start or exits early; prints the end of the log if it has a traceback.
    """
    with tempfile.TemporaryDirectory() as folder:
        model, log_path = Path(folder) / "model", Path(folder) / "log"
        make(model, [ROOT / "README.md", ROOT / "docs"], seconds=1, steps=3, seed=1)
        more = prepare(model)
        port = unused_port()
        with log_path.open("wb") as log:
            process = psutil.Popen(
                [COMMAND, "serve", model, "--port", str(port), "--seed", "0", *flags, *more],
                stdout=log, stderr=log, env=os.environ | {"PENSTOCK_CPU_LIMIT": "1"},
            )  # fmt: skip
        try:
            _wait_until_ready(f"http://127.0.0.1:{port}", process, log_path)
            yield f"http://127.0.0.1:{port}", process
            if process.poll() is not None:
                raise RuntimeError(f"the engine has died: {log_path.read_text(errors='replace')}")
        finally:
            process.kill()
            process.wait()
            log_text = log_path.read_text(errors="replace")
            if "Traceback" in log_text:
                print(log_text[-4000:])


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log_path: Path) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline_s:
        with suppress(httpx.TransportError):
            if httpx.get(f"{url}/ready").status_code == 200:
                return
        time.sleep(0.1)
    raise RuntimeError(f"the engine does not start: {log_path.read_text(errors='replace')}")
