"""Inputs of the placement loop, as functions of what the leader watches and polls."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from penstock.clients.kubernetes.client import Object
from penstock.clients.kubernetes.informer import Key
from penstock.controller.adapters.rollouts import RolloutSources
from penstock.core.adapters.demand import AdapterCounts
from penstock.core.observed.name_index import NameIndex


@dataclass(frozen=True, slots=True)
class Sources:
    """Functions that return the placer's inputs. None: not listed, or not read yet.

    names: model names that all objects claim. children: Deployments and pods. counts: of gateways for a
    service, by the adapter's name in engines.
    """

    services: Callable[[], Mapping[Key, Object] | None]
    routes: Callable[[], Iterable[Object] | None]
    names: Callable[[], NameIndex]
    children: Callable[[], tuple[list[Object], list[Object]] | None]
    counts: Callable[[Key], Mapping[str, AdapterCounts] | None]
    rollouts: RolloutSources
