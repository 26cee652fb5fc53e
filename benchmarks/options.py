"""Options of programs on the command line."""

import argparse
from pathlib import Path


def option_parser(
    doc: str | None, **defaults: float | str | Path | bool
) -> argparse.ArgumentParser:
    """A parser whose help is a program's docstring as written.

    defaults: of an option --NAME each, whose values have the type of the default. One of False is a flag.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    for name, default in defaults.items():
        option = f"--{name.replace('_', '-')}"
        if default is False:
            parser.add_argument(option, action="store_true")
        else:
            parser.add_argument(option, type=type(default), default=default)
    return parser
