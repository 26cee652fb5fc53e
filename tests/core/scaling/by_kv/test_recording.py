"""Recordings of services without objectives: replayed, compared with other rules, explained."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.core.scaling.by_kv.engine_loads import engine
from tests.core.scaling.by_kv.engine_loads import observation as of_engines
from typer.testing import CliRunner

from penstock.cli.main import build
from penstock.core.formats.serialization import DecodeError
from penstock.core.scaling.by_kv.rule import KvRule
from penstock.core.scaling.by_kv.tick import KvSettings, KvTick
from penstock.core.scaling.by_kv.what_if import decide_settled
from penstock.core.scaling.by_objectives.rule import ObjectivesRule
from penstock.core.scaling.by_objectives.tick import Settings, Tick
from penstock.core.scaling.delays import ScaleDownDelay
from penstock.core.scaling.learned.priors import prior
from penstock.core.scaling.recording import VERSION, Recording, RecordingWriter
from penstock.core.scaling.rule import Bounds
from penstock.core.scaling.signals import Observation
from penstock.core.scaling.what_if import changes, with_settings
from penstock.core.spec.objectives import Objectives
from penstock.sim.baselines import registry

CAPACITY_TOKENS = 10_000
SETTINGS = KvSettings(KvRule(0.75, 4, 60.0), Bounds(1, 5))


def observation(now_s: float, replicas: int, usage: float, waiting: int = 0) -> Observation:
    each = engine(usage, waiting, 2, 0, CAPACITY_TOKENS, at_s=now_s)
    return of_engines(*[each] * replicas, now_s=now_s)


def ticks(count: int, seed: int = 1) -> Iterator[KvTick]:
    draw, state, replicas = random.Random(seed), SETTINGS.rule.initial(), 1
    for number in range(count):
        seen = observation(1000.0 + 2 * number, replicas, draw.random(), draw.randint(0, 9))
        decision, after = SETTINGS.rule.decide(None, SETTINGS.bounds, seen, state)
        yield KvTick(SETTINGS, state, seen, decision)
        state, replicas = after, decision.desired


def recording_lines(made: list[KvTick | Tick]) -> list[str]:
    writer = RecordingWriter("default/chat")
    return [line for tick in made for line in writer.lines(tick)]


def tick_of(usage: float, waiting: int = 0, replicas: int = 1) -> KvTick:
    seen, state = observation(1000.0, replicas, usage, waiting), SETTINGS.rule.initial()
    return KvTick(
        SETTINGS, state, seen, SETTINGS.rule.decide(None, SETTINGS.bounds, seen, state)[0]
    )


def with_objectives(now_s: float) -> Tick:
    settings = Settings(ObjectivesRule(prior(None)), Objectives(2.0, 0.1), Bounds(1, 5), 512)
    state, seen = settings.rule.initial(), observation(now_s, 1, 0.5)
    decision, _ = settings.rule.decide(settings.objectives, settings.bounds, seen, state)
    return Tick(settings, state, seen, decision)


def test_the_recorded_rule_gives_the_recorded_decisions() -> None:
    made = list(ticks(200))
    again = list(Recording.read(recording_lines([*made])).replay())
    assert [tick for tick, _ in again] == made
    assert [decision for _, decision in again] == [tick.decision for tick in made]
    assert len({tick.decision.desired for tick in made}) > 2


def test_a_stored_recording_of_version_2_is_read() -> None:
    header = (
        '{"version":2,"service":"default/chat","settings":{"rule":{"kv_utilization_target":0.75,'
        '"queue_length_target":4,"scale_down_delay_s":60.0,"period_s":2.0},"bounds":{"min_replicas":1,'
        '"max_replicas":5}},"state":{"low_since_s":940.0,"seen_s":998.0}}'
    )
    made = [replace(tick_of(0.1, replicas=3), state=ScaleDownDelay(940.0, 998.0))]
    recording = Recording.read([header, *recording_lines([*made])[1:]])
    assert recording.header.settings == SETTINGS
    assert [decision.desired for _, decision in recording.replay()] == [2]


def test_objectives_may_be_set_and_removed_on_the_way() -> None:
    made = [*ticks(3), with_objectives(1010.0), *ticks(2)]
    recording = Recording.read(recording_lines(made))
    assert [line.state is None for line in recording.lines] == [True] * 3 + [False, False, True]
    assert all(decision == tick.decision for tick, decision in recording.replay())
    assert recording.changes_rule


def test_settings_of_one_rule_with_the_state_of_the_other_are_refused() -> None:
    recording = Recording.read(recording_lines([*ticks(2)]))
    mixed = replace(recording.header, state=with_objectives(0.0).state)
    with pytest.raises(DecodeError, match="line 2: settings and state are of different rules"):
        list(replace(recording, header=mixed).replay())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "chat.jsonl"
    file.write_text("\n".join(recording_lines([*ticks(60)])) + "\n")
    return file


@pytest.mark.parametrize(
    "words", [[], ["--param", "queue_length_target=1"], ["--policy", "hpa-kv"]]
)
def test_replay(file: Path, words: list[str]) -> None:
    said = CliRunner().invoke(build("replay"), ["replay", str(file), *words])
    assert said.exit_code == 0, said.output
    assert "default/chat: 60 decisions, all identical" in said.output


@pytest.mark.parametrize("policy", registry.PUBLISHED)
def test_rules_that_need_objectives_are_refused(file: Path, policy: str) -> None:
    published = registry.PUBLISHED[policy]
    needs_more = published.takes_profile or published.needs_objectives
    said = CliRunner().invoke(build("replay"), ["replay", str(file), "--policy", policy])
    assert said.exit_code == (2 if needs_more else 0), said.output
    assert ("had no spec.objectives" in said.output) == needs_more


def test_loads_that_change_the_number_of_an_idle_service() -> None:
    found = {change.what: change.decision.desired for change in changes(tick_of(0.0))}
    assert found["KV demand above 7,500 tokens (now 0)"] == 2
    assert found["5 or more waiting requests (now 0)"] == 2


def test_less_load_gives_fewer_replicas() -> None:
    """Three replicas with 12,000 tokens, which two can hold at 75 %, and a queue of 10."""
    found = {c.what: c.decision.desired for c in changes(tick_of(0.6, 1, replicas=3))}
    assert found["KV demand of at most 15,000 tokens (now 18,000)"] == 2
    assert found["KV demand above 22,500 tokens (now 18,000)"] == 4


def test_a_number_that_falls_after_the_delay_is_the_first_change() -> None:
    found = [(c.what, c.decision.desired) for c in changes(tick_of(0.1, replicas=3))]
    assert found[0] == ("the present load, for longer than scaleDownDelay", 2)
    assert ("KV demand above 15,000 tokens (now 3,000)", 3) in found


@pytest.mark.parametrize("waiting", [0, 1, 5, 12, 40, 200])
def test_the_nearest_queues_are_found(waiting: int) -> None:
    """The nearest queue length: one request closer to the present queue, the number stays."""
    tick = tick_of(0.3, waiting, replicas=3)
    now = decide_settled(tick).desired
    lengths = {c.what: c.decision for c in changes(tick) if "waiting" in c.what}
    for what, decision in lengths.items():
        count = int(what.split()[0])
        nearer = count - 1 if "more" in what else count + 1
        seen = observation(1000.0, 3, 0.3)
        first = replace(seen.pods[0], reading=replace(seen.pods[0].reading, waiting=nearer))
        near = replace(tick, seen=replace(seen, pods=(first, *seen.pods[1:])))
        assert decide_settled(near).desired == now != decision.desired
    assert lengths


def test_a_large_service_at_its_bounds_is_explained_at_once() -> None:
    """32 engines that run 256 requests each: 270,000 queue lengths, of which none changes the number."""
    seen = observation(1000.0, 32, 0.95)
    pods = tuple(replace(p, reading=replace(p.reading, running=256)) for p in seen.pods)
    settings = replace(SETTINGS, bounds=Bounds(1, 32))
    tick = replace(tick_of(0.95), settings=settings, seen=replace(seen, pods=pods))
    tick = replace(tick, decision=decide_settled(tick))
    assert "maxReplicas=33" in [change.what for change in changes(tick)]


def test_settings_that_change_the_number() -> None:
    found = {c.what: c.decision.desired for c in changes(tick_of(0.6))}
    assert found["kvUtilizationPercent=38"] == 2
    assert found["minReplicas=2"] == 2
    assert "scaleDownDelay=120s" not in found


def test_without_metrics_nothing_is_said_of_loads() -> None:
    blind = replace(tick_of(0.5), seen=Observation(1000.0, (), 1))
    assert [c.what for c in changes(blind)] == ["minReplicas=2"]


@pytest.mark.parametrize(
    ("given", "replicas"),
    [({"minReplicas": "3"}, 3), ({"kvUtilizationPercent": "25"}, 3), ({"queueLength": "1"}, 3)],
)
def test_a_setting_is_tried(given: dict[str, str], replicas: int) -> None:
    assert with_settings(tick_of(0.6, waiting=6), given).desired == replicas


def test_a_setting_that_needs_fewer_replicas_counts_as_if_it_had_lasted() -> None:
    assert with_settings(tick_of(0.55, replicas=3), {"kvUtilizationPercent": "95"}).desired == 2


@pytest.mark.parametrize("lines", [1, 0])
def test_a_recording_without_decisions_is_refused(lines: int) -> None:
    with pytest.raises(DecodeError, match="has no decisions" if lines else "is empty"):
        Recording.read(recording_lines(list(ticks(3)))[:lines])


def test_an_older_recording_in_which_objectives_were_set_is_refused() -> None:
    """The rule without objectives is as it was, the one with them is not."""
    header, *lines = recording_lines([*ticks(2), with_objectives(1010.0)])
    older = header.replace(f'"version":{VERSION}', '"version":2')
    assert len(Recording.read([older, *lines[:2]]).lines) == 2
    with pytest.raises(DecodeError, match=r"older Penstock.*record again"):
        Recording.read([older, *lines])


def test_a_line_of_deeply_nested_json_is_refused() -> None:
    lines = [*recording_lines(list(ticks(3))), "[" * 100_000]
    with pytest.raises(DecodeError, match="line 5 is not JSON"):
        Recording.read(lines)


def test_a_rule_that_cannot_compute_ends_with_a_sentence(file: Path) -> None:
    said = CliRunner().invoke(
        build("replay"), ["replay", str(file), "--param", "queue_length_target=0"]
    )
    assert (said.exit_code, said.output.count("penstock replay:")) == (2, 1), said.output


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"ttft": "1s"}, "no setting 'ttft'; there are minReplicas"),
        ({"kvUtilizationPercent": "9"}, "kvUtilizationPercent must be 10 to 95"),
        ({"queueLength": "0"}, "queueLength at least 1"),
        ({"scaleDownDelay": "1"}, "is not a duration"),
    ],
)
def test_a_setting_that_cannot_be(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        with_settings(tick_of(0.6), given)
