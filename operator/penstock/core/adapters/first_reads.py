"""Loads of adapters that no engine has read yet: their status says early whether they can be served."""

from collections.abc import Collection, Iterator, Sequence

from penstock.core.adapters.place import PlacementPlan
from penstock.core.adapters.replica import AdapterReplica
from penstock.core.adapters.retention import num_loading, used_slots

# Slots of a pod that stay free for requests that need another adapter.
MIN_FREE = 1


def first_reads(
    unread: Collection[str],
    replicas: Sequence[AdapterReplica],
    plan: PlacementPlan,
    failing: Collection[str] = (),
) -> Iterator[tuple[str, str]]:
    """Further loads after a plan, as (name in engines, pod): at most one on each pod.

    unread: names of adapters in engines, in the order in which to read them, into free slots. failing: those
    that did not load for a request. They are read first, and without a free slot too: an engine refuses bad
    files before it evicts another adapter for them, and only its answer says what is bad.
    """
    placed = {name for name, _ in plan.loads} | {
        name for replica in replicas for name in replica.copies
    }
    waiting = [name for name in unread if name not in placed]
    failed = [name for name in waiting if name in failing]
    others = [name for name in waiting if name not in failing]
    busy = {pod for _, pod in plan.loads}
    for replica in replicas:
        if replica.pod in busy or num_loading(replica):
            continue
        has_room = replica.slots - used_slots(replica) > MIN_FREE
        if failed:
            yield failed.pop(0), replica.pod
        elif others and has_room:
            yield others.pop(0), replica.pod
