"""Starts `penstock-engine serve` in processes that are forked after the imports.

The imports take 2 s of CPU time, and the tests start some forty engines.
"""

import os
import sys
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path

# The module of the command is not among them: it notes when the process started.
PRELOADED = ["typer", "penstock_engine.server.serve"]


def start_engine(arguments: list[str], log_path: Path) -> ForkServerProcess:
    """Start `penstock-engine serve` with the arguments. The log gets what it prints."""
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=_serve, args=(arguments, log_path))
    process.start()
    return process


def _serve(arguments: list[str], log_path: Path) -> None:
    with log_path.open("wb") as log:
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())
    sys.argv = ["penstock-engine", "serve", *arguments]
    from penstock_engine.cli import main

    main()
