"""Lets the process read objects that are nested as deeply as the API server accepts."""

import sys

# Levels of JSON that the API server accepts, in a field without a schema such as spec.template.
MAX_LEVELS = 10_000
# Levels and frames around an object: of a list or an event, and of the program that reads it.
MAX_OTHERS = 2_000


def allow_deep_objects() -> None:
    """Raise the recursion limit of the process to the depth of any object. Call it once, at the start.

    From 1,000 levels on the JSON parser would raise RecursionError, for a whole list or watch: one object
    would hide all others. It needs less than 2 MiB of the stack for the deepest, of usually 8 MiB. Code
    that calls itself more than once for each level still raises, for that object alone. Python 3.12 and later
    apply the limit to Python code only: there the JSON parser, which is in C, has a limit of its own.
    """
    sys.setrecursionlimit(MAX_LEVELS + MAX_OTHERS)
