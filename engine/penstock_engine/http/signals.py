"""An HTTP server that leaves the signals of its process to others."""

from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn


class SignalFreeServer(uvicorn.Server):
    """uvicorn's server without its signal handlers, which would replace those of the process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
