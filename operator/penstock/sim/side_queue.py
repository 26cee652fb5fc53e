"""Requests that wait at the simulated gateway for the engines of one side."""

from penstock.core.admission.admission import Admission
from penstock.core.admission.admission_spec import AdmissionSpec
from penstock.core.admission.engine_kind import EngineKind
from penstock.core.admission.engine_load import EngineLoad
from penstock.sim.request import Request


class SideQueue:
    """Admission queue for the engines of one side."""

    def __init__(self, spec: AdmissionSpec) -> None:
        self.admission = Admission(spec)
        self.loads: dict[str, EngineLoad] = {}
        self.kind = EngineKind()
        self.queued: dict[str, Request] = {}
