"""matplotlib without a display, with its font list in the cache folder."""

import os
from types import ModuleType

from penstock.clients.machine.caches import cache_root


def pyplot() -> ModuleType:
    """Import pyplot. It takes most of a second, so it is imported only when needed."""
    os.environ.setdefault("MPLCONFIGDIR", str(cache_root() / "matplotlib"))
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt
