"""PodDisruptionBudgets as the reconciler is given them, here without a watch."""

from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.resources import DISRUPTION_BUDGETS
from penstock.controller.services.reader import Budgets


def listed_budgets(kube: Kube) -> Budgets:
    """A function that lists the PodDisruptionBudgets of a namespace."""

    async def budgets(namespace: str) -> list[Object]:
        found, _ = await kube.list(DISRUPTION_BUDGETS, namespace)
        return found

    return budgets
