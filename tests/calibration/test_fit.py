"""From samples to the model they were made with."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.calibration.fit import NUM_TERMS, Sample, fit
from penstock.calibration.probe import Answer
from penstock.calibration.sweep import Limits, batches, decoding, num_tokens, prompts
from penstock.sim import scenario
from penstock.sim.profile import IterationTimes, Profile, profile, write

seconds = st.floats(min_value=1e-7, max_value=1e-2)


def samples_of(times: IterationTimes, request_s: float, noise: float, seed: int) -> list[Sample]:
    """Prompts alone and batches, as a sweep has them."""
    random = Random(seed)
    made = []
    for length in (16, 64, 256, 1024, 4000):
        chunks = -(-length // 512)
        made.append((chunks, length, length * length / 2, 0, 0, 1))
    for sequences in (1, 2, 4, 8, 16, 32):
        made += [(32, 0, 0, 32 * sequences, 32 * sequences * length, 0) for length in (30, 900)]
    return [
        Sample(
            iterations=n, prompt_tokens=p, pairs=pairs, sequences=b, kv_tokens=kv, requests=r,
            time_s=max(1e-9, random.gauss(1, noise)) * (
                n * times.fixed_s + times.prompt_token_s * p + times.pair_s * pairs
                + times.sequence_s * b + times.kv_token_s * kv + r * request_s
            ),
        )
        for n, p, pairs, b, kv, r in made
    ]  # fmt: skip


@given(fixed_s=seconds, prompt_token_s=seconds, sequence_s=seconds, request_s=seconds)
def test_the_model_that_made_the_samples_is_found(
    fixed_s: float, prompt_token_s: float, sequence_s: float, request_s: float
) -> None:
    times = IterationTimes(
        fixed_s=fixed_s, prompt_token_s=prompt_token_s, pair_s=1e-9,
        sequence_s=sequence_s, kv_token_s=1e-7,
    )  # fmt: skip
    found = fit(samples_of(times, request_s, noise=0.0, seed=0))
    assert found.error < 1e-3
    for work in ((0, 0, 8, 4000), (512, 512 * 256, 8, 4000)):
        assert found.times.iteration_s(*work) == pytest.approx(times.iteration_s(*work), rel=0.02)


def test_noise_is_told_and_does_not_lead_astray() -> None:
    times = IterationTimes(
        fixed_s=5e-3, prompt_token_s=4e-5, pair_s=2e-9, sequence_s=3e-4, kv_token_s=2e-7
    )
    for seed in range(20):
        found = fit(samples_of(times, 2e-3, noise=0.05, seed=seed))
        assert 0.01 < found.times.noise < 0.1
        assert found.times.iteration_s(512, 512 * 256, 8, 4000) == pytest.approx(
            times.iteration_s(512, 512 * 256, 8, 4000), rel=0.25
        )


def test_samples_that_do_not_tell_are_refused() -> None:
    with pytest.raises(ValueError, match="too few"):
        fit([Sample(iterations=1, time_s=1.0)] * (NUM_TERMS - 1))
    with pytest.raises(ValueError, match="prompt token"):
        fit([Sample(iterations=n, time_s=n * 0.01) for n in range(1, 10)])


def test_a_stretch_counts_what_all_of_them_did() -> None:
    """Two sequences, tokens 10 ms apart; the second begins 20 ms later."""
    first = Answer(100, 0.0, tuple(0.01 * i for i in range(1, 21)))
    second = Answer(50, 0.0, tuple(0.02 + 0.01 * i for i in range(1, 21)))
    sample = decoding([first, second])
    assert sample.iterations == 16  # from 40 ms to 200 ms
    assert sample.time_s == pytest.approx(0.16)
    assert sample.sequences == 32
    assert sample.kv_tokens == pytest.approx(16 * (100 + 12 + 50 + 10))


@given(
    st.builds(
        Limits,
        max_model_len=st.integers(128, 200_000),
        max_num_seqs=st.integers(1, 512),
        max_num_batched_tokens=st.integers(512, 16_384),
        kv_tokens=st.integers(256, 2_000_000),
    )
)
def test_a_sweep_asks_for_nothing_that_does_not_fit(limits: Limits) -> None:
    lengths = list(prompts(limits))
    assert lengths == sorted(set(lengths))
    assert lengths[-1] < limits.max_model_len
    for sequences, length in batches(limits):
        tokens = length + num_tokens(sequences, length, limits)
        assert tokens <= limits.max_model_len
        assert sequences * tokens <= limits.kv_tokens
        assert sequences <= limits.max_num_seqs


def test_a_measured_profile_is_one_to_simulate_with(tmp_path: Path) -> None:
    times = IterationTimes(
        fixed_s=5e-3, prompt_token_s=4e-5, pair_s=2e-9, sequence_s=3e-4, kv_token_s=2e-7
    )
    made = Profile(
        name="mine", source="here", gpu="cpu", gpu_hour_price=0, times=times, request_s=2e-3,
        kv_tokens=10_000,
    )  # fmt: skip
    path = tmp_path / "mine.yaml"
    path.write_text(write(made))
    assert profile(str(path)) == made
    path.write_text(write(made) + write(made.model_copy(update={"name": "other"})))
    profile.cache_clear()
    with pytest.raises(ValueError, match="holds 2 profiles"):
        profile(str(path))
    with pytest.raises(ValueError, match="there are: llama"):
        scenario.load("llm-d-ramp").with_each(profile="llama-9")
    with pytest.raises(ValueError, match="No such file"):
        scenario.load("llm-d-ramp").with_each(profile=str(tmp_path / "none.yaml"))
