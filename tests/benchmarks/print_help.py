"""Runs modules with --help, one after another in one process. Prints those that do not end with a usage."""

import io
import runpy
import sys
from contextlib import redirect_stdout


def prints_usage(module: str) -> bool:
    sys.argv = [module, "--help"]
    told = io.StringIO()
    try:
        with redirect_stdout(told):
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        return ended.code == 0 and told.getvalue().startswith("usage: ")
    return False


if __name__ == "__main__":
    print(*(module for module in sys.argv[1:] if not prints_usage(module)))
