"""Rules that know no cache: in turn, at random, by load, by session, by hash."""

from collections import Counter

import pytest
from tests.sim.routing.conftest import MakeViews, Pick

from penstock.sim.request import Request
from penstock.sim.routing.bounded_hashing import BoundedHashing, first_block
from penstock.sim.routing.least_loaded import LeastLoaded
from penstock.sim.routing.registry import PICKERS, make_picker
from penstock.sim.routing.round_robin import RoundRobin
from penstock.sim.routing.session import SessionAffinity
from penstock.sim.routing.uniform import Uniform


def request(number: int = 0, session: str = "", prefix: tuple[int, ...] = ()) -> Request:
    return Request(f"r{number}", 0.0, 1000, 100, prefix, session=session)


def test_round_robin_takes_the_engines_in_turn(make_views: MakeViews, pick: Pick) -> None:
    rule, views = RoundRobin(), make_views()
    assert [pick(rule, views, request()) for _ in range(5)] == ["a", "b", "c", "a", "b"]


@pytest.mark.parametrize(("draw", "pod"), [(0.0, "a"), (0.34, "b"), (0.99, "c")])
def test_a_random_engine_follows_the_draw(
    make_views: MakeViews, pick: Pick, draw: float, pod: str
) -> None:
    assert pick(Uniform(), make_views(), request(), draw) == pod


@pytest.mark.parametrize(
    ("tokens", "draw", "pod"),
    [((5, 3, 4), 0.9, "b"), ((3, 9, 3), 0.4, "a"), ((3, 9, 3), 0.6, "c")],
)
def test_the_least_loaded_engine_has_the_fewest_tokens(
    make_views: MakeViews, pick: Pick, tokens: tuple[int, int, int], draw: float, pod: str
) -> None:
    assert pick(LeastLoaded(), make_views(tokens=tokens), request(), draw) == pod


def test_a_session_stays_where_it_was_while_that_engine_is_there(
    make_views: MakeViews, pick: Pick
) -> None:
    rule = SessionAffinity()
    assert pick(rule, make_views(tokens=(5, 3, 4)), request(session="s")) == "b"
    assert pick(rule, make_views(tokens=(5, 9, 4)), request(session="s")) == "b"
    assert pick(rule, make_views(tokens=(5, 9, 4)), request(session="t")) == "c"
    without_b = [view for view in make_views(tokens=(2, 0, 4)) if view.pod != "b"]
    assert pick(rule, without_b, request(session="s")) == "a"
    assert pick(rule, make_views(tokens=(5, 0, 4)), request(session="s")) == "a"


class TestBoundedHashing:
    def rule(self, make_views: MakeViews, by_first_block: bool = False) -> BoundedHashing:
        rule = BoundedHashing(first_block) if by_first_block else BoundedHashing()
        for view in make_views():
            rule.engine_added(view, 0.0)
        return rule

    def test_a_key_has_one_engine(self, make_views: MakeViews, pick: Pick) -> None:
        rule = self.rule(make_views)
        pods = [pick(rule, make_views(), request(session=f"s{i % 9}")) for i in range(90)]
        assert pods == pods[:9] * 10
        assert set(pods) == {"a", "b", "c"}

    def test_256_points_spread_keys_evenly(self, make_views: MakeViews, pick: Pick) -> None:
        rule, views = self.rule(make_views), make_views()
        counts = Counter(pick(rule, views, request(session=f"s{i}")) for i in range(3000))
        assert min(counts.values()) > 850

    def test_a_removed_engine_moves_only_its_keys(self, make_views: MakeViews, pick: Pick) -> None:
        rule, views = self.rule(make_views), make_views()
        before = {f"s{i}": pick(rule, views, request(session=f"s{i}")) for i in range(200)}
        rule.engine_removed("b", 1.0)
        without_b = [view for view in views if view.pod != "b"]
        after = {s: pick(rule, without_b, request(session=s)) for s in before}
        assert {s for s in before if before[s] != after[s]} == {
            s for s in before if before[s] == "b"
        }

    @pytest.mark.parametrize(
        ("own", "others", "stays"),
        [
            # bound: 1.25 x (requests + 1) / 3
            (4, 4, True),  # 5 of at most 5.4
            (5, 4, False),  # 6 of at most 5.8
            (0, 0, True),
            (2, 1, False),  # 3 of at most 2.1
            (1, 0, True),  # 2 of at most 0.8, and the others have 1 of it too
        ],
    )
    def test_an_engine_above_the_bound_is_passed_over(
        self, make_views: MakeViews, pick: Pick, own: int, others: int, stays: bool
    ) -> None:
        rule = self.rule(make_views)
        home = pick(rule, make_views(), request(session="s"))
        loads = tuple(own if pod == home else others for pod in "abc")
        picked = pick(rule, make_views(requests=loads), request(session="s"))
        assert (picked == home) is stays

    def test_the_first_block_is_another_key(self, make_views: MakeViews, pick: Pick) -> None:
        rule, views = self.rule(make_views, by_first_block=True), make_views()
        sent = [request(session=f"s{i}", prefix=(7, i)) for i in range(20)]
        assert len({pick(rule, views, each) for each in sent}) == 1


def test_every_rule_has_a_name_and_a_description() -> None:
    assert all(text for _, text in PICKERS.values())
    with pytest.raises(ValueError, match="no routing rule 'x'; there are: penstock, round-robin"):
        make_picker("x")
