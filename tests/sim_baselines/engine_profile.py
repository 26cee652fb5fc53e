"""An engine profile: 10 ms per iteration and 50 us per prompt token, so that 8,192 tokens take 0.4206 s."""

from penstock.core.scaling.engine_profile import EngineProfile

PROFILE = EngineProfile(
    base_s=0.01,
    prefill_token_s=5e-5,
    sequence_s=1e-3,
    kv_token_s=1e-7,
    max_batched_tokens=8192,
    max_sequences=64,
    kv_capacity_tokens=100_000,
)
