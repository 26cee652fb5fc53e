"""All dashboards, as files."""

from penstock.observability.dashboards import (
    adapters,
    cost,
    engine,
    gateway,
    operator,
    overview,
    rollout,
    scaling,
)

_MODULES = (overview, scaling, rollout, adapters, engine, gateway, operator, cost)


def files() -> dict[str, str]:
    """File name -> JSON of a dashboard."""
    boards = [module.board() for module in _MODULES]
    return {f"{board.name}.json": board.json() for board in boards}
