"""Copies that are drained to make room, while one of their requests never ends."""

from tests.core.adapters.pods import BUSY, engine_name, replica, version

from penstock.core.adapters.route import MAX_WAIT_S, DrainCopy, Refuse, Wait, route_adapter
from penstock.gateway.adapters.residency import AdapterResidency

POD, BUSY_NAME, WANTED_NAME = "default/p0", engine_name("busy"), engine_name("wanted")
VERSIONS = {each.engine_name: each for each in (version("busy"), version("wanted"))}


def seconds_drained(total_s: int) -> list[int]:
    """Seconds in which the only copy is drained, with a request in ten seconds for another adapter."""
    now_s = 0
    residency = AdapterResidency(lambda: float(now_s))
    arrivals: list[int] = []
    draining = []
    for now_s in range(total_s):
        residency.note_list(POD, {BUSY_NAME: BUSY}, float(now_s))
        if now_s % 10 == 0:
            arrivals.append(now_s)
        for arrived_s in list(arrivals):
            drained = replica(
                POD,
                1,
                residency.copies(POD) or {},
                draining_copies=residency.draining(POD),
                backing_off_copies=residency.backing_off(POD),
            )
            waited_s = float(now_s - arrived_s)
            match route_adapter(WANTED_NAME, [drained], VERSIONS, {}, waited_s):
                case DrainCopy(pod, name):
                    residency.drain_copy(pod, name)
                case Refuse():
                    assert waited_s == MAX_WAIT_S
                    arrivals.remove(arrived_s)
                case decision:
                    assert isinstance(decision, Wait)
        if not residency.holders([POD], BUSY_NAME):
            draining.append(now_s)
    return draining


def test_a_copy_whose_request_never_ends_is_closed_less_and_less() -> None:
    draining = seconds_drained(1000)
    starts = [each for each in draining if each - 1 not in draining]
    assert starts == [5, 25, 55, 105, 195, 365, 675, 985]
    assert draining == [start + second for start in starts for second in range(10)]
