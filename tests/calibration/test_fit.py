"""The fit recovers the model that made the samples; a sweep stays within the engine's limits."""

from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.calibration.fit import NUM_TERMS, Sample, fit
from penstock.calibration.probe import Answer
from penstock.calibration.sweep import MAX_CLIENTS, Limits, batches, num_tokens, prompts, visits
from penstock.calibration.work import decoding, waiting
from penstock.sim import scenario
from penstock.sim.profile import IterationTimes, Profile, profile, write

seconds = st.floats(min_value=1e-7, max_value=1e-2)


def samples_of(times: IterationTimes, request_s: float, noise: float, seed: int) -> list[Sample]:
    """Samples of single prompts, batches and both together, as in a sweep."""
    random = Random(seed)
    made = []
    for length in (16, 64, 256, 1024, 4000):
        chunks = -(-length // 512)
        made += 3 * [(chunks, length, length * length / 2, 0, 0, 1)]
    for sequences in (1, 2, 4, 8, 16, 32):
        made += [(32, 0, 0, 32 * sequences, 32 * sequences * length, 0) for length in (30, 900)]
    for sequences in (1, 2, 4, 8):
        for length in (40, 200, 700):
            kv = 20 * sequences * length
            made.append((20, length, length * length / 2, 20 * sequences, kv, 0))
            made.append((2.5, length, length * length / 2, 2.5 * sequences, kv / 8, 1))
    return [
        Sample(
            iterations=n, prompt_tokens=p, pairs=pairs, sequences=b, kv_tokens=kv, requests=r,
            time_s=random.lognormvariate(-noise * noise / 2, noise) * (
                times.iteration_s(p, pairs, b, kv) + (n - 1) * times.fixed_s + r * request_s
            ),
        )
        for n, p, pairs, b, kv, r in made
    ]  # fmt: skip


@given(fixed_s=seconds, prompt_token_s=seconds, sequence_s=seconds, request_s=seconds)
def test_the_fit_recovers_the_model(
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


def test_noise_is_estimated_and_causes_little_bias() -> None:
    times = IterationTimes(
        fixed_s=5e-3, prompt_token_s=4e-5, pair_s=2e-9, sequence_s=3e-4, kv_token_s=2e-7
    )  # fmt: skip
    shares = []
    for seed in range(40):
        found = fit(samples_of(times, 2e-3, noise=0.25, seed=seed))
        assert 0.1 < found.times.noise < 0.4
        shares += [
            found.times.iteration_s(*work) / times.iteration_s(*work)
            for work in ((0, 0, 8, 4000), (512, 512 * 256, 8, 4000))
        ]
    assert all(0.6 < share < 1.6 for share in shares)
    # Errors relative to measured times would give 0.87: a bias of twice the square of the noise (1/4).
    assert mean(shares) == pytest.approx(1, abs=0.04)


def test_samples_that_determine_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="too few"):
        fit([Sample(iterations=1, time_s=1.0)] * (NUM_TERMS - 1))
    with pytest.raises(ValueError, match="prompt token"):
        fit([Sample(iterations=n, time_s=n * 0.01) for n in range(1, 10)])


def test_an_interval_counts_the_work_of_all_answers() -> None:
    """Two sequences with tokens every 10 ms; the second starts 20 ms later."""
    first = Answer(100, 0.0, tuple(0.01 * i for i in range(1, 21)))
    second = Answer(50, 0.0, tuple(0.02 + 0.01 * i for i in range(1, 21)))
    sample = decoding(first, [first, second], begin_s=second.token_s[1])
    assert sample.iterations == 16  # from 40 ms to 200 ms
    assert sample.time_s == pytest.approx(0.16)
    assert sample.sequences == 32
    assert sample.kv_tokens == pytest.approx(16 * (100 + 12 + 50 + 10))
    assert sample.prompt_tokens == 0


def test_a_new_request_delays_decoding_and_waits_for_one_and_a_half_iterations() -> None:
    told = Answer(100, 0.0, tuple(0.01 * i for i in range(1, 21)))
    come = Answer(600, 0.055, (0.11, 0.12))  # among the iterations that end at 60 to 110 ms
    stretch = decoding(told, [told, come], begin_s=told.token_s[0])
    assert (stretch.iterations, stretch.prompt_tokens) == (19, 600)
    assert stretch.pairs == 600 * 600 / 2
    assert stretch.sequences == 19 + 1
    assert stretch.requests == 0
    wait = waiting(come, [told, come], max_num_batched_tokens=512)
    assert (wait.iterations, wait.requests) == (5.5, 1)
    assert wait.sequences == pytest.approx(5.5)
    assert wait.kv_tokens == pytest.approx(5.5 * (100 + 8))
    assert wait.time_s == pytest.approx(0.055)


def test_a_prompt_on_an_idle_engine_takes_one_iteration_per_chunk() -> None:
    gone = Answer(30, 0.0, (0.1, 0.2))
    alone = Answer(1000, 1.0, (1.3,))
    sample = waiting(alone, [gone, alone], max_num_batched_tokens=512)
    assert (sample.iterations, sample.sequences, sample.prompt_tokens) == (2, 0, 1000)
    assert sample.requests == 1


@given(
    st.builds(
        Limits,
        max_model_len=st.integers(128, 200_000),
        max_num_seqs=st.integers(1, 512),
        max_num_batched_tokens=st.integers(512, 16_384),
        kv_tokens=st.integers(256, 2_000_000),
    )
)
def test_a_sweep_stays_within_the_engines_limits(limits: Limits) -> None:
    lengths = list(prompts(limits))
    assert lengths == sorted(set(lengths))
    assert lengths[-1] < limits.max_model_len
    for sequences, length in batches(limits):
        tokens = length + num_tokens(sequences, length, limits)
        assert tokens <= limits.max_model_len
        assert sequences * tokens <= limits.kv_tokens
        assert sequences <= limits.max_num_seqs
    for clients in (1, MAX_CLIENTS):
        for pause_s, prompt, answer in visits(clients, limits, Random(1)):
            assert pause_s >= 0
            assert prompt >= 1
            assert answer >= 2
            assert prompt + answer <= limits.max_model_len
            assert clients * (prompt + answer) <= limits.kv_tokens


def test_a_measured_profile_can_be_simulated(tmp_path: Path) -> None:
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


def test_samples_without_a_duration_are_left_out() -> None:
    """A client that was paused reads the first and the last token at the same moment."""
    times = IterationTimes(
        fixed_s=1e-3, prompt_token_s=1e-5, pair_s=1e-9, sequence_s=1e-4, kv_token_s=1e-7
    )
    samples = samples_of(times, 1e-3, noise=0.0, seed=0)
    stood_still = [replace(sample, time_s=0.0) for sample in samples[:NUM_TERMS]]
    assert fit(samples + stood_still) == fit(samples)
    with pytest.raises(ValueError, match="too few"):
        fit(stood_still)
