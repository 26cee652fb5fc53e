"""Sampled tokens follow the exact distribution: a part of benchmarks/engine/sampling_distribution.py."""

import pytest
from benchmarks.engine import sampling_distribution as campaign


def test_samples_follow_the_exact_distribution() -> None:
    """The sampling parameters of requests are combined at random, with and without drafts."""
    p_values = campaign.campaign(60, 1500, seed=3)
    passed, text = campaign.verdict(p_values)
    print(f"seed 3: {text}")
    assert passed, text


def test_a_seed_samples_the_same_tokens_alone_and_in_a_batch_of_32() -> None:
    assert campaign.num_seeds_that_differ(campaign.make_settings(32, seed=3)) == 0


@pytest.mark.parametrize("parameter", ["temperature", "presence_penalty", "logit_bias", "min_p"])
def test_the_check_detects_an_ignored_parameter(parameter: str) -> None:
    settings = [s for s in campaign.make_settings(300, seed=3) if parameter in s.wishes]
    for setting in settings:
        counts, _ = campaign.draw_many(setting, 1500, 0)
        rest = {name: value for name, value in setting.wishes.items() if name != parameter}
        ignored = campaign.SamplingParams(max_tokens=100, **rest)
        output = setting.output
        if setting.with_draft:
            first = campaign.exact(setting.logits[0], setting.sampling, setting.prompt, output)
            output = [*output, max(range(len(first)), key=first.__getitem__)]
        logits = setting.logits[1 if setting.with_draft else 0]
        expected = campaign.exact(logits, ignored, setting.prompt, output)
        if campaign.p_value(counts, expected) * len(settings) < campaign.FLOOR:
            return
    pytest.fail(f"in all {len(settings)} settings, samples agree with ignoring {parameter}")
