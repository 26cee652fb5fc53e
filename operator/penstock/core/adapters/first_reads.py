"""Loads of adapters that no engine has read yet: their status says early whether they can be served."""

from collections.abc import Collection, Iterator, Sequence

from penstock.core.adapters.place import PlacementPlan
from penstock.core.adapters.replica import AdapterReplica
from penstock.core.adapters.retention import is_loading, used_slots

# Slots of a pod that stay free for requests that need another adapter.
MIN_FREE = 1


def first_reads(
    unread: Collection[str], replicas: Sequence[AdapterReplica], plan: PlacementPlan
) -> Iterator[tuple[str, str]]:
    """Further loads after a plan, as (name in engines, pod): at most one on each pod, into free slots.

    unread: names of adapters in engines, in the order in which to read them.
    """
    placed = {name for name, _ in plan.loads} | {
        name for replica in replicas for name in replica.copies
    }
    waiting = iter([name for name in unread if name not in placed])
    busy = {pod for _, pod in plan.loads}
    for replica in replicas:
        free = replica.slots - used_slots(replica)
        if replica.is_draining or replica.pod in busy or is_loading(replica) or free <= MIN_FREE:
            continue
        if (name := next(waiting, None)) is None:
            return
        yield name, replica.pod
