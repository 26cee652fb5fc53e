"""Configurations of the scheduler and the runner.

Each field is read from MemoryPlan if it has a field of that name, else from EngineConfig; fields named
differently are listed.
"""

from collections.abc import Collection
from dataclasses import fields
from typing import Any

from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.memory.plan import MemoryPlan
from penstock_engine.options.config import EngineConfig


def scheduler_config(config: EngineConfig, memory_plan: MemoryPlan) -> SchedulerConfig:
    return SchedulerConfig(
        **_values(
            SchedulerConfig,
            memory_plan,
            config,
            defaults=("adapter_max_wait_s",),
            prefix_caching=config.enable_prefix_caching,
            max_num_queued_seqs=config.max_num_queued_reqs,
            policy=config.scheduling_policy,
            speculation=config.speculative_config,
        )
    )


def runner_config(config: EngineConfig, memory_plan: MemoryPlan) -> RunnerConfig:
    return RunnerConfig(**_values(RunnerConfig, memory_plan, config))


def _values(
    kind: type[SchedulerConfig | RunnerConfig],
    memory_plan: MemoryPlan,
    config: EngineConfig,
    defaults: Collection[str] = (),
    **others: Any,
) -> dict[str, Any]:
    """The value of each field of `kind` but `defaults`.

    defaults: fields that no flag sets. others: values of fields whose flag has another name.
    """
    names = {field.name for field in fields(kind)} - {*defaults, *others}
    sources = {name: memory_plan if hasattr(memory_plan, name) else config for name in names}
    return others | {name: getattr(source, name) for name, source in sources.items()}
