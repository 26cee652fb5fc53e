"""Specs that the API refuses: name of the case, the spec, and a part of the error message."""

import copy
from typing import Any

GOOD: dict[str, Any] = {"model": {"uri": "pvc://models/tiny"}}


def changed(path: str, value: Any) -> dict[str, Any]:
    """GOOD with one field set."""
    spec = copy.deepcopy(GOOD)
    node, *parts = spec, *path.split(".")
    for part in parts[:-1]:
        node = node.setdefault(part, {})
    node[parts[-1]] = value
    return spec


def objectives(scaling: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    wanted = {"ttft": "2s", "tpot": "100ms"} | fields
    return {**GOOD, "objectives": wanted, "scaling": scaling or {}}


def variants(*made: dict[str, Any]) -> dict[str, Any]:
    return objectives() | {"variants": [{"pricePerHour": "1"} | each for each in made]}


GPU = "nvidia.com/gpu"


def limits(found: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return changed("resources.limits", (found or {}) | more)


def rollout(strategy: str | None = None, **members: Any) -> dict[str, Any]:
    return {**GOOD, "rollout": members | ({"strategy": strategy} if strategy else {})}


def canary(**settings: Any) -> dict[str, Any]:
    return rollout("Canary", canary=settings)


def rolling(surge: int | str, unavailable: int | str) -> dict[str, Any]:
    return rollout(rolling={"maxSurge": surge, "maxUnavailable": unavailable})


def evaluation(*env: dict[str, Any]) -> dict[str, Any]:
    return {"image": "x", "env": list(env)}


MORE_THAN_LIMIT = {"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}}
METRIC = {"name": "m", "server": "http://p:9090", "query": "up"}
SECRET = {"secretKeyRef": {"name": "s", "key": "k"}}


def drafts(method: str, **more: Any) -> dict[str, Any]:
    wanted = {"method": method, "numSpeculativeTokens": 2} | more
    return changed("engine.speculative", wanted)


DRAFT = {"uri": "pvc://models/draft"}

BAD = [
    ("a draft model is missing", drafts("eagle3"), "model must be set with method draft_model"),
    (
        "no draft model for n-grams",
        drafts("ngram", model=DRAFT),
        "model must not be set with method",
    ),
    ("n-grams of another method", drafts("mtp", ngram={}), "ngram requires method ngram"),
    (
        "fewer adapters in host memory than run",
        changed("engine.lora", {"maxAdapters": 4, "maxCPUAdapters": 2}),
        "maxCPUAdapters must not be smaller",
    ),
    (
        "adapters in a folder of a claim",
        changed("engine.lora", {"maxAdapters": 4, "sources": ["pvc://adapters/sql"]}),
        "pvc://CLAIM, without a path",
    ),
    (
        "adapters in an object store",
        changed("engine.lora", {"maxAdapters": 4, "sources": ["s3://adapters"]}),
        "pvc://CLAIM, without a path",
    ),
    (
        "adapters in an upward path",
        changed("engine.lora", {"maxAdapters": 4, "sources": ["file:///a/../etc"]}),
        "must not contain '..'",
    ),
    (
        "a folder of adapters that cannot be mounted",
        changed("engine.lora", {"maxAdapters": 4, "sources": ["file:///a:b"]}),
        "without a colon",
    ),
    (
        "sources without adapters",
        changed("engine.lora", {"sources": ["pvc://a"]}),
        "maxAdapters",
    ),
    (
        "a repetition penalty that no engine takes",
        changed("engine.generation.defaults.repetitionPenalty", "0.001"),
        "must be from 0.01 to 2",
    ),
    ("no model", {}, "spec.model"),
    ("no uri", {"model": {}}, "spec.model.uri"),
    ("another scheme", changed("model.uri", "ftp://host/model"), "must start with pvc://CLAIM"),
    ("no repository", changed("model.uri", "hf://model"), "must be hf://ORG/NAME"),
    ("two revisions", changed("model.uri", "hf://org/name@a@b"), "must be hf://ORG/NAME"),
    ("no bucket", changed("model.uri", "s3:///model"), "must be s3://BUCKET/PATH"),
    ("no registry", changed("model.uri", "oci://models"), "must be oci://HOST/NAME"),
    (
        "short digest",
        changed("model.uri", "https://a/m.gguf#sha256=0"),
        "must be https://HOST/PATH",
    ),
    (
        "a password",
        changed("model.uri", "https://u:p@a/m.gguf"),
        "spec.model.secretRef names the Secret",
    ),
    (
        "a query",
        changed("model.uri", "s3://bucket/m?token=x"),
        "spec.model.secretRef names the Secret",
    ),
    ("a space", changed("model.uri", "gs://bucket/my model"), "without spaces"),
    (
        "path out of a repository",
        changed("model.uri", "hf://org/name/../x"),
        "must not contain '..'",
    ),
    (
        "path out of a repository with percent signs",
        changed("model.uri", "hf://org/name/%2e%2E/x"),
        "must not contain '.' or '..' as a folder",
    ),
    ("folder that is a dot", changed("model.uri", "s3://bucket/a%2F."), "must not contain '.'"),
    ("no path", changed("model.uri", f"https://a/#sha256={'0' * 64}"), "must be https://HOST/PATH"),
    ("no host", changed("model.uri", "oci://a..b/name:v1"), "must be oci://HOST/NAME"),
    ("host of a long part", changed("model.uri", f"oci://{'a' * 64}/name"), "must be oci://HOST"),
    (
        "no secret",
        changed("model.secretRef", {"name": "My Secret"}),
        "must be the name of an object: lower-case letters, digits, - and .",
    ),
    ("no claim of the cache", changed("model.cache", {}), "claimName must be set, unless type"),
    (
        "a type without its claim",
        changed("model.cache", {"type": "Claim"}),
        "claimName must be set",
    ),
    ("another type of cache", changed("model.cache", {"type": "Memory"}), "spec.model.cache.type"),
    (
        "two caches",
        changed("model.cache", {"claimName": "c", "type": "Node"}),
        "claimName must not be set with type Node",
    ),
    (
        "a size of the nodes' caches",
        changed("model.cache", {"type": "Node", "sizeLimit": "1Gi"}),
        "the chart value nodeCache.sizeLimit",
    ),
    (
        "empty cache",
        changed("model.cache", {"claimName": "c", "sizeLimit": 0}),
        "at least one byte",
    ),
    ("relative file", changed("model.uri", "file://models/x"), "must start with pvc://CLAIM"),
    ("no claim", changed("model.uri", "pvc:///models"), "must name a claim"),
    ("trailing slash", changed("model.uri", "pvc://models/tiny/"), "without a trailing slash"),
    ("upward path", changed("model.uri", "file:///models/../etc"), "must not contain '..'"),
    ("uri is a number", changed("model.uri", 3), "spec.model.uri"),
    ("uri too long", changed("model.uri", "file:///" + "x" * 600), "spec.model.uri"),
    ("empty model name", changed("model.name", ""), "spec.model.name"),
    ("model name with a slash", changed("model.name", "a/b"), "may have letters, digits"),
    ("context of 1", changed("engine.maxModelLen", 1), "greater than or equal to 16"),
    ("no sequences", changed("engine.maxNumSeqs", 0), "spec.engine.maxNumSeqs"),
    ("budget of 1", changed("engine.maxNumBatchedTokens", 1), "greater than or equal to 16"),
    (
        "budget below sequences",
        {**GOOD, "engine": {"maxNumSeqs": 100, "maxNumBatchedTokens": 64}},
        "must not be smaller than engine.maxNumSeqs",
    ),
    ("unknown dtype", changed("engine.dtype", "int8"), "float32"),
    ("negative seed", changed("engine.seed", -1), "spec.engine.seed"),
    ("block size 20", changed("engine.kvCache.blockSize", 20), "must be 8, 16, 32, 64 or 128"),
    (
        "KV memory in words",
        changed("engine.kvCache.memory", "lots"),
        "must be a quantity such as 2",
    ),
    ("no KV memory", changed("engine.kvCache.memory", 0), "must be at least one byte"),
    ("less than a byte", changed("engine.kvCache.memory", "999m"), "must be at least one byte"),
    (
        "utilization above 100 %",
        changed("engine.memoryUtilizationPercent", 101),
        "less than or equal to 100",
    ),
    ("utilization of 0", changed("engine.memoryUtilizationPercent", 0), "or equal to 5"),
    ("utilization with a fraction", changed("engine.memoryUtilizationPercent", 0.9), "integer"),
    ("prefix caching maybe", changed("engine.kvCache.prefixCaching.mode", "maybe"), "Enabled"),
    ("prefix caching as a boolean", changed("engine.kvCache.prefixCaching", True), "object"),
    ("memory without unit name", limits(memory="2 GB"), "must be a quantity such as"),
    ("negative cpu", limits(cpu="-1"), "must not be negative"),
    ("gpu without domain", limits(gpu=1), "or DOMAIN/NAME, such as nvidia.com/gpu"),
    ("half a gpu", limits({GPU: "500m"}), "must have whole numbers of extended resources"),
    ("65 gpus", limits({GPU: 65}), "must have at most 64 accelerators"),
    (
        "two kinds of accelerators",
        limits({"a.example/gpu": 1, "b.example/gpu": 1}),
        "must have one kind of accelerator",
    ),
    (
        "more requested than allowed",
        {**GOOD, "resources": {"requests": {"cpu": 3}, "limits": {"cpu": "2500m"}}},
        "requests must not be greater than limits",
    ),
    (
        "fewer gpus requested than allowed",
        {**GOOD, "resources": {"requests": {GPU: 1}, "limits": {GPU: 2}}},
        "must equal their limits",
    ),
    (
        "gpus without a limit",
        {**GOOD, "resources": {"requests": {GPU: 1}}},
        "must equal their limits",
    ),
    (
        "a claim twice",
        changed("resources.claims", [{"name": "gpu"}, {"name": "gpu"}]),
        "Duplicate value",
    ),
    ("unknown mode", changed("scaling.mode", "Magic"), "DryRun"),
    ("min below 0", changed("scaling.minReplicas", -1), "spec.scaling.minReplicas"),
    (
        "min of 0 in External",
        {**GOOD, "replicas": 0, "scaling": {"mode": "External", "minReplicas": 0}},
        "scaling.minReplicas 0 requires scaling.mode Active or DryRun",
    ),
    (
        "idleAfter with a minimum",
        changed("scaling.idleAfter", "5m"),
        "scaling.idleAfter requires scaling.minReplicas 0",
    ),
    (
        "atZero with a minimum",
        changed("rollout.atZero", "Accept"),
        "spec.rollout.atZero requires spec.scaling.minReplicas 0",
    ),
    (
        "idleAfter of 0",
        {**GOOD, "scaling": {"minReplicas": 0, "idleAfter": "0s"}},
        "must not be zero",
    ),
    (
        "min above max",
        {**GOOD, "scaling": {"minReplicas": 3, "maxReplicas": 2}},
        "must not be greater than scaling.maxReplicas",
    ),
    (
        "target of 99%",
        changed("scaling.targets.kvUtilizationPercent", 99),
        "less than or equal to 95",
    ),
    ("target of 0", changed("scaling.targets.kvUtilizationPercent", 0), "kvUtilizationPercent"),
    ("target with a fraction", changed("scaling.targets.kvUtilizationPercent", 75.5), "integer"),
    ("queue target 0", changed("scaling.targets.queueLength", 0), "spec.scaling.targets"),
    ("delay without unit", changed("scaling.scaleDownDelay", "60"), "must be a duration such as"),
    ("External without a number", changed("scaling.mode", "External"), "needs replicas"),
    ("replicas in Active", {**GOOD, "replicas": 2}, "requires scaling.mode External"),
    (
        "negative replicas",
        {**GOOD, "replicas": -1, "scaling": {"mode": "External"}},
        "spec.replicas",
    ),
    ("no objective", {**GOOD, "objectives": {"attainment": "0.9"}}, "needs ttft or tpot"),
    ("objective of 0", objectives(ttft="0s"), "must not be zero"),
    ("objective without unit", objectives(tpot="100"), "must be a duration such as"),
    ("attainment of 0", objectives(attainment="0"), "must be from 0.5 to 0.9999"),
    ("attainment of all", objectives(attainment="1"), "must be from 0.5 to 0.9999"),
    ("attainment as a number", objectives(attainment=0.99), "spec.objectives.attainment"),
    ("attainment in percent", objectives(attainment="99%"), "must be a decimal number in quotes"),
    (
        "objectives in External",
        objectives(scaling={"mode": "External"}),
        "requires spec.scaling.mode Active or DryRun",
    ),
    (
        "objectives and a KV target",
        objectives(scaling={"targets": {"kvUtilizationPercent": 50}}),
        "must not both be set",
    ),
    (
        "objectives and a queue target",
        objectives(scaling={"targets": {"queueLength": 9}}),
        "must not both be set",
    ),
    ("a canary in Rolling", rollout(canary={}), "canary requires strategy Canary"),
    (
        "blueGreen in Canary",
        rollout("Canary", blueGreen={"promotion": "Manual"}),
        "blueGreen requires strategy BlueGreen",
    ),
    ("rolling in Recreate", rollout("Recreate", rolling={}), "requires strategy Rolling"),
    ("copies of nothing", canary(mirror={"percent": 0}), "mirror.percent"),
    ("copies of all and more", canary(mirror={"percent": 101}), "mirror.percent"),
    ("weights out of order", canary(minWeightPercent=9, maxWeightPercent=8), "must not be greater"),
    ("a weight as a fraction", canary(minWeightPercent=0.05), "integer"),
    ("more than half", canary(maxWeightPercent=51), "less than or equal to 50"),
    ("alpha as a number", canary(alpha=0.01), "string"),
    ("alpha of 1", canary(alpha="1"), "must be from 0.0001 to 0.2"),
    ("no tolerance", canary(latencyTolerancePercent=0), "greater than or equal to 1"),
    ("another comparison", canary(comparison="Control"), "FreshControl"),
    ("an unknown affinity", canary(sessionAffinity={"type": "Header"}), "Conversation"),
    ("an affinity without a type", canary(sessionAffinity={}), "sessionAffinity.type"),
    (
        "a metric that is measured too often",
        canary(metrics=[METRIC | {"maximum": "1", "interval": "9s999ms"}]),
        "must be at least 10s",
    ),
    ("a metric without bounds", canary(metrics=[METRIC]), "needs a minimum or a maximum"),
    (
        "bounds out of order",
        canary(metrics=[METRIC | {"minimum": "10", "maximum": "9"}]),
        "minimum must not be greater than maximum",
    ),
    (
        "a bound as a number",
        canary(metrics=[METRIC | {"maximum": 0.02}]),
        "string",
    ),
    (
        "two metrics of a name",
        canary(metrics=[METRIC | {"maximum": "1"}, METRIC | {"minimum": "-0.5"}]),
        "uplicate",
    ),
    (
        "a variable with two values",
        canary(evaluation=evaluation({"name": "A", "value": "x", "valueFrom": SECRET})),
        "value and valueFrom must not both be set",
    ),
    (
        "two variables of a name",
        canary(evaluation=evaluation({"name": "A"}, {"name": "A"})),
        "uplicate",
    ),
    (
        "a source of nothing",
        canary(evaluation=evaluation({"name": "A", "valueFrom": {}})),
        "secretKeyRef",
    ),
    (
        "an evaluation that requests more than its limit",
        canary(evaluation={"image": "x", "resources": MORE_THAN_LIMIT}),
        "requests must not be greater than limits",
    ),
    ("a surge of 25", rolling("25", 1), "a percentage such as 25%"),
    ("a surge of 1001", rolling(1001, 1), "a number from 0 to 1000"),
    ("no surge and all available", rolling(0, 0), "must not both be 0"),
    ("no surge and the default", rollout(rolling={"maxSurge": "00%"}), "must not both be 0"),
    ("more than all unavailable", rolling(1, "101%"), "must not be more than 100%"),
    ("promotion as a boolean", rollout("BlueGreen", blueGreen={"promotion": True}), "promotion"),
    (
        "variants without objectives",
        {**GOOD, **variants({"name": "a"}), "objectives": None},
        "set them, or remove the variants",
    ),
    ("a free variant", variants({"name": "a", "pricePerHour": "0"}), "must be from 0.0001"),
    ("a variant without a price", objectives() | {"variants": [{"name": "a"}]}, "pricePerHour"),
    ("a variant called control", variants({"name": "control"}), "must not be called control"),
    (
        "a variant called as another one of a control",
        variants({"name": "x"}, {"name": "control-x"}),
        "must not be named control- and the name of another variant",
    ),
    ("a variant in capitals", variants({"name": "H100"}), "must have lower-case letters"),
    ("two variants of a name", variants({"name": "a"}, {"name": "a"}), "a"),
    (
        "more of them than replicas",
        variants({"name": "a", "minReplicas": 2}),
        "must not be greater than scaling.maxReplicas",
    ),
    (
        "a variant's min above its max",
        variants({"name": "a", "minReplicas": 1, "maxReplicas": 0}),
        "must not be greater than its maxReplicas",
    ),
    (
        "a toleration of nothing",
        variants({"name": "a", "tolerations": [{"effect": "NoSchedule"}]}),
        "without a key needs operator Exists",
    ),
    ("no time to drain", changed("terminationGracePeriodSeconds", 13), "or equal to 14"),
    ("template is text", {**GOOD, "template": "pod"}, "spec.template"),
]
