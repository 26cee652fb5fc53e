"""matplotlib without a screen, its list of fonts kept where the rest is kept."""

import os
from types import ModuleType

from penstock.clients.caches import cache_root


def pyplot() -> ModuleType:
    """Imported when it is wanted: that takes most of a second."""
    os.environ.setdefault("MPLCONFIGDIR", str(cache_root() / "matplotlib"))
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt
