"""State of the providers of external models at a gateway: keys, use and connections."""

from penstock.core.providers.external_model import ExternalModel, ExternalUse
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.snapshots.snapshot import Snapshot
from penstock.gateway.state.external_keys import ExternalKeys
from penstock.gateway.upstream.external_connector import external_connector
from penstock.gateway.upstream.upstream import RECEIVE_BUFFER_BYTES, Upstream


class ExternalProviders:
    """Keys, use and connections of all external models. keys: of their providers."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.keys = ExternalKeys()
        self._settings = settings
        self._uses: dict[str, ExternalUse] = {}
        self._upstream: Upstream | None = None

    @property
    def upstream(self) -> Upstream:
        """The connection pool, made for the first request."""
        if self._upstream is None:
            connector = external_connector(RECEIVE_BUFFER_BYTES)
            self._upstream = Upstream(self._settings, connector)
        return self._upstream

    def use(self, model: ExternalModel) -> ExternalUse:
        """Return what this gateway has sent to an external model."""
        return self._uses.setdefault(model.key, ExternalUse())

    def update(self, snapshot: Snapshot) -> None:
        """Forget the external models that a snapshot lacks."""
        keys = {each.key for each in snapshot.externals}
        self._uses = {key: use for key, use in self._uses.items() if key in keys or use.num_running}

    async def close(self) -> None:
        """Close all connections."""
        if self._upstream is not None:
            await self._upstream.__aexit__()
