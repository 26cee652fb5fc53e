"""`python -m penstock.local.hub CLUSTER`: run the hub mirror of a local cluster, until SIGTERM."""

import sys

from aiohttp import web

from penstock.clients.machine.logs import configure as configure_logs
from penstock.local.chat_model import NAME, REPOSITORY, models_folder
from penstock.local.hub.repositories import Repositories
from penstock.local.hub.server import HubMirror
from penstock.local.record import HUB_PORT, get


async def make_app() -> web.Application:
    return HubMirror(Repositories(models_folder(), {REPOSITORY: NAME})).app()


if __name__ == "__main__":
    cluster = get(sys.argv[1])
    configure_logs("text")  # for a file that people read
    web.run_app(make_app(), host=cluster.address, port=HUB_PORT, print=None)
