"""The engines of a gateway: where requests go, and what is learned of what engines have cached."""

from tests.support.engine_models import model_of

from penstock.core.admission.engine_kind import FIRST_WINDOWS, FOLLOW_S, EngineKind
from penstock.core.admission.engine_load import Waiting
from penstock.core.admission.engines import Engines
from penstock.core.engine_time.first_token import PromptWork
from penstock.core.routing.prefix.prompt_prefix import hash_text
from penstock.core.routing.request_attributes import RequestAttributes

TEXT = b"s" * 4096


def request(text=TEXT, adapter="", tokens=1024.0):
    attributes = RequestAttributes(None, None, hash_text(text))
    return Waiting("w", 0.0, 1.0, tokens, tokens + 128, attributes, adapter)


def engines_of(*pods):
    engines, kind = Engines(), EngineKind(model_of(1000.0))
    return engines, [engines.load(pod, kind) for pod in pods]


def go(engines, loads, waiting, now=0.0, draw=0.0):
    """Send a request, and end it. Returns its place."""
    chosen = engines.choose(waiting, loads, now, draw)
    placement = engines.send(waiting, chosen.load, now)
    placement.release(now)
    return placement


def test_a_prompt_goes_where_its_beginning_is():
    engines, loads = engines_of("a", "b", "c")
    first = go(engines, loads, request(), draw=0.5)
    assert first.pod == "b"
    for draw in (0.0, 0.5, 0.99):
        assert go(engines, loads, request(TEXT + b"more" * 64), draw=draw).pod == "b"
    assert go(engines, loads, request(b"x" * 4096)).pod == "a"
    assert go(engines, loads, request(adapter="sql")).pod == "a"


def test_a_busy_engine_does_not_get_every_request_for_what_it_has():
    engines, loads = engines_of("a", "b")
    pods = []
    for _ in range(6):
        waiting = request()
        chosen = engines.choose(waiting, loads, 0.0, 0.0)
        engines.send(waiting, chosen.load, 0.0)
        pods.append(chosen.load.pod)
    assert {pods.count("a"), pods.count("b")} == {3}


def test_only_reported_tokens_make_prompts_short():
    """An engine that does not say what it has cached may have no cache at all."""
    engines, loads = engines_of("a")
    go(engines, loads, request())
    prefix = request().prefix
    assert engines.reported_tokens(prefix, 1024.0, {"a"}) == {}
    place = engines.send(request(), loads[0], 0.0)
    assert loads[0].prefill_tokens == 1024.0
    engines.note_cached(place, 1024, None)
    place.release(0.0)
    assert engines.reported_tokens(prefix, 1024.0, {"a"}) == {}
    place = engines.send(request(), loads[0], 0.0)
    engines.note_cached(place, 1024, 1000)
    place.release(0.0)
    assert engines.reported_tokens(prefix, 1024.0, {"a", "b"}) == {"a": 1024.0}
    assert engines.reported_tokens(prefix, 1024.0, {"b"}) == {}
    engines.send(request(), loads[0], 0.0)
    assert loads[0].prefill_tokens == 0.0


def test_an_answer_that_misses_shows_what_was_evicted():
    engines, loads = engines_of("a")
    go(engines, loads, request())
    engines.note_cached(go(engines, loads, request()), 1024, 1000)
    for number in range(99):
        go(engines, loads, request(b"%04d" % number * 1024))
    place = go(engines, loads, request())
    engines.note_cached(place, 1024, None)  # vLLM reports no 0
    for number in range(99):
        go(engines, loads, request(b"%04d" % (100 + number) * 1024))
    assert engines.index.overlap("a", request().prefix) == 0


def test_what_is_gone_is_forgotten():
    engines, loads = engines_of("a", "b")
    kind = loads[0].kind
    go(engines, loads, request())
    engines.keep_only({"a", "b"}, {"b"})
    assert engines.index.overlap("a", request().prefix) == 0
    assert engines.loads["a"] is loads[0]
    engines.keep_only({"b"}, {"b"})
    assert engines.loads.keys() == kind.listeners.keys() == {"b"}
    assert engines.of(["b", "c"])[1].kind is kind


def test_engines_of_a_kind_learn_from_each_other():
    engines = Engines()
    one, other = engines.of(["a", "b"])
    before = other.token_s
    work = PromptWork(2000.0, 0, 0.0)
    for number in range(FIRST_WINDOWS + 1):
        one.kind.first_token(work, 4.0, float(number))
    assert other.token_s > 5 * before
    followed = other.token_s
    one.kind.first_token(work, 4.1, float(FIRST_WINDOWS) + FOLLOW_S / 2)
    assert other.token_s == followed  # so many engines do not change with each answer
    one.kind.first_token(work, 4.1, float(FIRST_WINDOWS) + FOLLOW_S)
    assert other.token_s != followed


def test_requests_without_tokens_weigh_nothing():
    engines, loads = engines_of("a", "b")
    waiting = request(tokens=0.0)
    place = engines.send(waiting, loads[0], 0.0)
    assert (loads[0].prefill_tokens, len(engines.index)) == (0.0, 0)
    place.release(0.0)
    assert engines.tokens == {}
