"""Makes the console that commands print tables to."""

import os
import sys

from rich.console import Console

UNLIMITED_COLUMNS = 1000


def make_console() -> Console:
    """Return a console that, if the output is no terminal, neither wraps lines nor cuts tables.

    The variable COLUMNS sets another width. Markup is off because names and reasons may contain brackets.
    """
    is_fixed = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(highlight=False, markup=False, width=None if is_fixed else UNLIMITED_COLUMNS)
