"""Runs tests of an admission queue in virtual time."""

import pytest
from tests.gateway.admission.queue_bench import Bench, spec


@pytest.fixture
def run(run_virtually):
    """`run(main, engine, …, model=…)` runs `main(bench)`."""

    def run(main, *engines, wanted=None, **more):
        async def on_loop():
            await main(Bench(wanted or spec(), *engines, **more))

        run_virtually(on_loop)

    return run
