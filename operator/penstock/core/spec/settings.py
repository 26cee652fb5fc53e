"""Settings of engine, runtime and tracing: the set fields of the spec by path, in base units.

The map is flat, so that a new field needs no more than its schema in `api` and an argument of each runtime
in `core/runtimes`. A path is written out wherever it is used; the schema has all.
"""

from collections.abc import Mapping
from typing import Any

# For example {"engine.maxNumSeqs": 32, "engine.kvCache.memory": 536870912, "runtime.type": "VLLM"}. Memory is
# in bytes, time in seconds. A field that is not set is absent: the engine decides.
Settings = Mapping[str, Any]

DEFAULT_MEMORY_UTILIZATION_PERCENT = 90
DEFAULT_BLOCK_SIZE = 16
DEFAULT_DTYPE = "auto"
PENSTOCK, VLLM, CUSTOM = "Penstock", "VLLM", "Custom"
