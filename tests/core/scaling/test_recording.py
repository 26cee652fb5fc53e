"""A recording from any moment on gives the recorded decisions again, and another rule its own."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from penstock.cli.main import build
from penstock.core.formats.serialization import DecodeError
from penstock.core.scaling.recording import OLDER_VERSIONS, VERSION, Recording
from penstock.sim.baselines import registry

CURRENT = f'"version":{VERSION}'


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 2**32),
    skip=st.integers(0, 40),
    mean_arrivals=st.sampled_from([0.0, 0.3, 3.0, 30.0]),
    losses=st.sampled_from([0.0, 0.2]),
)
def test_the_recorded_rule_gives_the_recorded_decisions(
    live: Any, written: Any, seed: int, skip: int, mean_arrivals: float, losses: float
) -> None:
    ticks = list(live(seed, skip + 20, mean_arrivals=mean_arrivals, losses=losses, skip=skip))
    recording = Recording.read(written(ticks))
    assert recording.header.state == ticks[0].state
    assert [line.seen for line in recording.lines] == [tick.seen for tick in ticks]
    again = list(recording.replay())
    assert [decision for _, decision in again] == [tick.decision for tick in ticks]
    assert [tick.state for tick, _ in again] == [tick.state for tick in ticks]


@pytest.mark.parametrize("version", OLDER_VERSIONS)
def test_older_recording_is_refused_with_what_to_do(live: Any, written: Any, version: int) -> None:
    """Its settings and its state are those of another rule, so its decisions would not come again."""
    header, *lines = written(live(1, 10))
    older = json.loads(header) | {"version": version}
    older["settings"]["rule"]["backlog"] = 0.5
    with pytest.raises(DecodeError, match=rf"older Penstock.*format {version}.*record again"):
        Recording.read([json.dumps(older), *lines])


def test_replay_of_an_older_recording_says_what_to_do(
    live: Any, written: Any, tmp_path: Path
) -> None:
    file = tmp_path / "old.jsonl"
    lines = written(live(1, 3))
    file.write_text("\n".join([lines[0].replace(CURRENT, '"version":2'), *lines[1:]]))
    said = CliRunner().invoke(build("replay"), ["replay", str(file)])
    assert said.exit_code == 2
    assert f"{file} cannot be replayed: it was recorded by an older Penstock" in said.output
    assert "record again" in said.output


def test_settings_that_change_on_the_way_are_in_it(live: Any, written: Any) -> None:
    ticks = list(live(1, 30))
    bounds = replace(ticks[0].settings.bounds, max_replicas=1)
    last = ticks[-1]
    narrow = replace(last, settings=replace(last.settings, bounds=bounds))
    narrow = replace(narrow, decision=narrow.decide_again())
    recording = Recording.read(written([*ticks[:-1], narrow]))
    assert [line.settings is None for line in recording.lines] == [True] * 29 + [False]
    assert all(decision == tick.decision for tick, decision in recording.replay())


@pytest.mark.parametrize("name", registry.PUBLISHED)
def test_every_published_rule_can_be_set_beside(live: Any, written: Any, name: str) -> None:
    recording = Recording.read(written(live(2, 90)))
    rule = registry.PUBLISHED[name].build(recording.profile())
    numbers = [decision.desired for _, decision in recording.replay_with(rule, rule.initial())]
    assert len(numbers) == 90
    assert set(numbers) <= set(range(1, 11))


def test_a_rule_decides_as_seldom_as_it_does(live: Any, written: Any) -> None:
    recording = Recording.read(written(live(2, 60)))
    observations = []

    class Watching:
        period_s = 15.0

        def initial(self) -> None: ...

        def decide(self, objectives: Any, bounds: Any, seen: Any, state: Any) -> Any:
            observations.append((seen.now_s, seen.provisioned))
            return replace(recording.lines[0].decision, desired=len(observations) + 1), state

    assert len(list(recording.replay_with(Watching(), None))) == 60
    gaps = [b[0] - a[0] for a, b in pairwise(observations)]
    assert 14 < min(gaps) <= max(gaps) < 18
    assert [provisioned for _, provisioned in observations[1:]] == list(
        range(2, len(observations) + 1)
    )


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda lines: [], "the recording is empty"),
        (lambda lines: ["{", *lines], "line 1 is not JSON"),
        (lambda lines: lines[1:], "line 1 has no decision"),
        (lambda lines: [lines[0].replace(CURRENT, '"version":99')], "line 1.version is '99'"),
        (lambda lines: [lines[0], lines[0]], "line 2 has no "),
        (lambda lines: [lines[0], lines[1][:-9]], "line 2 is not JSON"),
    ],
)
def test_what_is_no_recording_is_refused(live: Any, written: Any, spoil: Any, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        Recording.read(spoil(written(live(1, 2))))


def test_it_is_small(live: Any, written: Any) -> None:
    """A header with all that is remembered, and a line of two engines, in kB."""
    header, *lines = written(live(1, 400))
    assert len(header) < 20_000
    assert max(map(len, lines)) < 8_000
    assert json.loads(header)["service"] == "default/chat"
