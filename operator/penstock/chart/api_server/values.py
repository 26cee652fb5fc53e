"""Values of objects for the API server: priority of the operator's requests, and the admission policy."""

from pydantic import Field

from penstock.chart.component.values import ValuesModel


class ApiPriority(ValuesModel):
    """Priority of the operator's requests at the API server."""

    enabled: bool = True
    """Give the operator's requests a FlowSchema and a PriorityLevelConfiguration of their own."""
    concurrency_shares: int = Field(default=10, ge=1)
    """Share of the API server's concurrency, of which the level for other workloads has 100."""


class AdmissionPolicy(ValuesModel):
    """ValidatingAdmissionPolicy of services."""

    enabled: bool = True
    """Have the API server refuse services whose pods would have rights that the operator does not allow.
    Without it the API server stores them, and the operator reports SpecValid=False. Not installed with
    operator.allowUnrestrictedTemplates."""
