"""The model families the engine knows, as data.

All are decoders of the same build (grouped-query attention, rotary positions, RMS norms, gated
MLP), so a family is a row here: the name that `architectures` in config.json carries, and what
the config does not say about it. A family with the same build is added by adding its row, and a
line to the families of the greedy-equality test; a new build is a sibling of decoder.py.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Architecture:
    """qk_norm: queries and keys are RMS-normalised by head before the rotation."""

    qk_norm: bool


ARCHITECTURES = {
    "LlamaForCausalLM": Architecture(qk_norm=False),
    "Qwen3ForCausalLM": Architecture(qk_norm=True),
}
