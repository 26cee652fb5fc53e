"""Rollouts and loads of a service's adapters, which need its engines even if no request waits."""

from penstock.clients.kubernetes.informer import Key
from penstock.controller.adapters.placer import AdapterPlacer
from penstock.core.scaling.idle import AdapterWork


def adapter_work(placer: AdapterPlacer, service: Key) -> AdapterWork:
    """The rollouts and loads of a service's adapters, as of the last pass of the placement loop."""
    known = placer.services.get(service)
    copies = (
        (copy for replica in known.replicas for copy in replica.copies.values()) if known else ()
    )
    return AdapterWork(
        is_rolling_out=any(each.service == service for each in placer.rollouts.running()),
        is_loading=any(copy.state == "Loading" for copy in copies),
    )
