"""Starts `penstock-engine serve` in processes that are forked after the imports.

The imports take 2 s of CPU time, and the tests start some forty engines.
"""

import os
import sys
from collections.abc import Mapping
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path

# The module of the command is not among them: it notes when the process started.
PRELOADED = ["typer", "penstock_engine.server.serve"]
NO_VARIABLES: Mapping[str, str] = {}


def start_engine(
    arguments: list[str], log_path: Path, variables: Mapping[str, str] = NO_VARIABLES
) -> ForkServerProcess:
    """Start `penstock-engine serve` with the arguments. The log gets what it prints.

    variables: of the environment, in addition to those of this process.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=_serve, args=(arguments, log_path, variables))
    process.start()
    return process


def _serve(arguments: list[str], log_path: Path, variables: Mapping[str, str]) -> None:
    with log_path.open("wb") as log:
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())
    os.environ |= variables
    sys.argv = ["penstock-engine", "serve", *arguments]
    from penstock_engine.cli import main

    main()
