"""What an engine is believed to be before it has reported: one row for each kind of hardware.

Only the proportions count: the first window of a real engine scales them, and a few dozen more correct
each term. A row is a model of about 8 billion weights, on the CPU of half a billion.
"""

import re

from penstock.core.sizing.iteration import IterationModel

CPU = IterationModel(base_s=0.04, prefill_token_s=2e-3, sequence_s=4e-3, kv_token_s=2e-6)
GPU = IterationModel(base_s=0.02, prefill_token_s=8e-5, sequence_s=5e-5, kv_token_s=1.5e-7)
# Slices of compute that a whole GPU has; a mig-1g device has one of them.
MIG_SLICES = 7
MIG = re.compile(r"/mig-(\d+)g\.")


def prior(accelerator: tuple[str, int] | None) -> IterationModel:
    """accelerator: (extended resource, count); None: the CPU."""
    if accelerator is None:
        return CPU
    slices = MIG.search(accelerator[0])
    part = int(slices[1]) / MIG_SLICES if slices else 1.0
    return GPU.times(1 / part)
