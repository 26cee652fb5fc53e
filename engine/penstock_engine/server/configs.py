"""Configurations of the scheduler and the runner.

A field has the value of the memory plan's field of its name, else that of the flag of its name.
"""

from dataclasses import fields
from typing import Any

from penstock_engine.core.scheduler_config import ADAPTER_MAX_WAIT_S, SchedulerConfig
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.memory.plan import MemoryPlan
from penstock_engine.options.config import EngineConfig


def scheduler_config(config: EngineConfig, memory_plan: MemoryPlan) -> SchedulerConfig:
    return SchedulerConfig(
        **_values(
            SchedulerConfig,
            memory_plan,
            config,
            prefix_caching=config.enable_prefix_caching,
            max_num_queued_seqs=config.max_num_queued_reqs,
            policy=config.scheduling_policy,
            speculation=config.speculative_config,
            adapter_max_wait_s=ADAPTER_MAX_WAIT_S,
        )
    )


def runner_config(config: EngineConfig, memory_plan: MemoryPlan) -> RunnerConfig:
    return RunnerConfig(**_values(RunnerConfig, memory_plan, config))


def _values(
    kind: type[SchedulerConfig | RunnerConfig],
    memory_plan: MemoryPlan,
    config: EngineConfig,
    **others: Any,
) -> dict[str, Any]:
    """The value of each field of `kind`. others: of fields that have no namesake."""
    names = {field.name for field in fields(kind)} - others.keys()
    sources = {name: memory_plan if hasattr(memory_plan, name) else config for name in names}
    return others | {name: getattr(source, name) for name, source in sources.items()}
