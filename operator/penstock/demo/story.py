"""The demo, chapter by chapter, on a real cluster. Only binaries and models may come from the cache."""

import asyncio
import json
import shutil
from pathlib import Path

import aiohttp
from rich.console import Console

from penstock.clients.kubernetes.client import connect
from penstock.clients.machine.clock import monotonic
from penstock.demo.adapters import show_adapters
from penstock.demo.errors import StoryFailed
from penstock.demo.load import End, Load, Outcome, Workload, corpus
from penstock.demo.narrator import Narrator
from penstock.demo.preparation import Models, prepare
from penstock.demo.stage import Stage, View
from penstock.demo.timeline import Sample, Timeline
from penstock.errors import KubeError
from penstock.local import cluster as clusters
from penstock.local import faults
from penstock.local.install import install

SERVICE = "chat"
CHAT_EXAMPLE, LOAD_EXAMPLE = "quickstart.yaml", "tiny-model.yaml"
# Time in which a service has to become Ready, in seconds: most of it is for the model's 270 MB from the hub.
READY_WITHIN_S = 300
# A client's prompt and answer take about 300 tokens of KV cache; an engine of the example has 4096, so
# 44 clients fill three engines.
PEAK_CLIENTS, CALM_CLIENTS = 44, 2
SAMPLE_S = 0.5


class Story:
    """Runs the chapters of the demo: an answer, scaling under load, a failure, adapters, and removal."""

    def __init__(self, root: Path, console: Console, *, name: str, picture: Path) -> None:
        self._root = root
        self._tell = Narrator(console)
        self._name = name
        self._picture = picture
        self._timeline = Timeline()
        self._started_s = 0.0
        self._desired: int | None = None

    async def run(self) -> None:
        """Run the demo. The cluster and its processes are always ended."""
        start_s = monotonic()
        if clusters.find(self._name) is not None:
            raise clusters.ClusterError(
                f"Cluster {self._name!r} exists already, and the demo removes its cluster at the end: use "
                "another --name, or remove it first (penstock local down)"
            )
        self._tell.chapter("Binaries and models, found or made")
        models = prepare(self._root, self._tell)
        cluster = self._cluster()  # on this thread: an interrupt is noticed at the next await
        try:
            await install(cluster, say=self._tell.say)
            async with await connect(cluster.kubeconfig) as kube:
                stage = Stage(cluster, kube)
                try:
                    stage.mount_models(models.link_into(cluster))
                    await self._chat(stage, models)
                    await self._scale(stage)
                    await show_adapters(stage, self._tell, self._root)
                    await self._remove(stage)
                finally:
                    await stage.close()
        finally:
            with self._tell.waiting("ending the cluster"):
                await asyncio.to_thread(clusters.down, self._name)
        self._tell.fact("cluster", "removed, with all its processes and files")
        self._timeline.plot(self._picture)
        self._tell.fact("picture", str(self._picture))
        self._tell.say(f"The demo took {monotonic() - start_s:.0f} s.")

    def _cluster(self) -> clusters.Cluster:
        self._tell.chapter("A real Kubernetes control plane, as processes")
        started_s = monotonic()
        cluster = clusters.up(self._name, say=self._tell.say, serves_hub=True)
        self._tell.fact("up", f"{cluster.server}, in {monotonic() - started_s:.0f} s")
        return cluster

    async def _chat(self, stage: Stage, models: Models) -> None:
        """Get an answer of a real model, then roll out the tiny one."""
        self._tell.chapter("One object")
        self._apply(stage, CHAT_EXAMPLE if models.chat else LOAD_EXAMPLE)
        await self._until_rolled_out(stage, previous=None)
        self._tell.command("kubectl get psvc")
        for line in stage.kubectl("get", "psvc").splitlines():
            self._tell.say(line)
        await self._ask(stage.cluster.gateway_url)
        if models.chat:
            self._tell.chapter("A rolling update, to a tiny model for the load")
            previous = (await stage.view(SERVICE)).status["stableRevision"]
            self._apply(stage, LOAD_EXAMPLE)
            await self._until_rolled_out(stage, previous)

    def _apply(self, stage: Stage, example: str) -> None:
        path = self._root / "examples" / example
        self._tell.yaml(path.read_text())
        self._tell.command(f"kubectl apply -f examples/{example}")
        self._tell.say(stage.kubectl("apply", "-f", str(path)).strip())

    async def _until_rolled_out(self, stage: Stage, previous: str | None) -> None:
        """Wait until a revision other than `previous` is rolled out, and all pods are of it."""

        def is_rolled_out(view: View) -> bool:
            stable = view.status.get("stableRevision")
            return (
                view.condition("RolledOut").get("status") == "True"
                and view.condition("Ready").get("status") == "True"
                and stable not in (None, previous)
                and {pod.revision for pod in view.pods} == {stable}
            )

        with self._tell.waiting("waiting for Ready"):
            took_s = await stage.wait_until(
                is_rolled_out, SERVICE, within_s=READY_WITHIN_S, what="the service is Ready"
            )
        self._tell.fact("Ready", f"after {took_s:.1f} s")

    async def _ask(self, gateway_url: str) -> None:
        self._tell.chapter("A streamed answer through the OpenAI-compatible URL")
        question = "What is a pod in Kubernetes?"
        self._tell.command(f"curl -N {gateway_url}/v1/chat/completions  # {question}")
        body = {
            "model": SERVICE,
            "messages": [{"role": "user", "content": question}],
            "max_tokens": 60,
            "temperature": 0,
            "stream": True,
        }
        tokens = 0
        self._tell.stream("  ")
        url = f"{gateway_url}/v1/chat/completions"
        async with aiohttp.ClientSession() as session, session.post(url, json=body) as answer:
            async for line in answer.content:
                if line.startswith(b"data: {"):
                    delta = json.loads(line[6:])["choices"][0]["delta"].get("content", "")
                    self._tell.stream(delta)
                    tokens += bool(delta)
        self._tell.stream("\n")
        self._tell.fact("streamed", f"{tokens} pieces of text")

    async def _scale(self, stage: Stage) -> None:
        self._tell.chapter("Load that fills the KV cache: 1 → 3 → 1 while requests flow")
        self._started_s = monotonic()
        async with Load(stage.cluster.gateway_url, workload(self._root)) as load:
            watching = asyncio.create_task(self._watch(stage, load))
            try:
                await self._surge(stage, load)
                await self._kill(stage, load)
                await self._calm(stage, load)
                await load.finish()
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
            self._account(load.outcomes)

    async def _surge(self, stage: Stage, load: Load) -> None:
        self._mark("load starts")
        self._tell.say(f"{PEAK_CLIENTS} clients stream without a pause.")
        load.set_clients(PEAK_CLIENTS)
        await stage.wait_until(
            lambda view: view.ready == 3, SERVICE, within_s=120, what="three engines are ready"
        )
        self._tell.fact("engines ready", "3")
        await asyncio.sleep(6)

    async def _kill(self, stage: Stage, load: Load) -> None:
        """Kill one engine under load with SIGKILL, and wait until it is replaced."""
        view = await stage.view(SERVICE)
        victim = min(pod.name for pod in view.pods if pod.is_ready)
        self._mark("an engine is killed")
        self._tell.command(f"kill -9 $(pid of {victim})")
        before = len(load.outcomes)
        faults.kill(stage.cluster, victim, "engine")
        await asyncio.sleep(2)
        took_s = await stage.wait_until(
            lambda view: view.ready == 3, SERVICE, within_s=90, what="the engine is back"
        )
        after = load.outcomes[before:]
        cut = sum(outcome.end is End.CUT for outcome in after)
        self._tell.fact(
            "killed engine",
            f"back after {took_s + 2:.0f} s; {cut} streams ended with an error event, "
            f"every other request was served by its neighbors",
        )

    async def _calm(self, stage: Stage, load: Load) -> None:
        self._mark("load ends")
        self._tell.say(f"{CALM_CLIENTS} clients are left.")
        load.set_clients(CALM_CLIENTS)
        await stage.wait_until(
            lambda view: view.ready == 1 and len(view.pods) == 1,
            SERVICE,
            within_s=120,
            what="one engine is left",
        )
        self._tell.fact("engines", "1, the others drained")

    def _account(self, outcomes: list[Outcome]) -> None:
        ends = {end: sum(outcome.end is end for outcome in outcomes) for end in End}
        waits = sorted(o.first_byte_s for o in outcomes if o.first_byte_s is not None)
        self._tell.table(
            f"{len(outcomes)} requests",
            [
                ("answered to the end", str(ends[End.DONE])),
                ("cut by the kill, ended with an error event", str(ends[End.CUT])),
                ("refused before their first byte", str(ends[End.REFUSED])),
                ("broken without an error event", str(ends[End.BROKEN])),
                ("first token, median", f"{waits[len(waits) // 2]:.2f} s"),
                ("first token, 95th percentile", f"{waits[int(len(waits) * 0.95)]:.2f} s"),
            ],
        )
        if ends[End.REFUSED] or ends[End.BROKEN]:
            bad = next(o for o in outcomes if o.end in (End.REFUSED, End.BROKEN))
            raise StoryFailed(f"a request failed that should not: {bad}")

    async def _remove(self, stage: Stage) -> None:
        self._tell.chapter("Everything removed")
        for words in (("lora", "--all"), ("psvc", SERVICE)):
            self._tell.command("kubectl delete", *words)
            stage.kubectl("delete", *words)
        took_s = await stage.wait_until_gone(SERVICE, within_s=60)
        self._tell.fact("children and finalizers left", f"none, after {took_s:.1f} s")

    def _mark(self, text: str) -> None:
        self._timeline.marks.append((monotonic() - self._started_s, text))

    async def _watch(self, stage: Stage, load: Load) -> None:
        """Sample the cluster periodically, and print each new scaling decision."""
        while True:
            at_s = monotonic() - self._started_s
            try:
                view = await stage.view(SERVICE)
            except KubeError:
                await asyncio.sleep(SAMPLE_S)
                continue
            desired = view.scaling.get("desiredReplicas", view.ready)
            kv_usage = await stage.kv_usage(view)
            self._timeline.samples.append(
                Sample(at_s, load.in_flight, kv_usage, view.ready, desired)
            )
            if self._desired is not None and desired != self._desired:
                self._tell.decision(at_s, desired, view.scaling.get("message", ""))
            self._desired = desired
            await asyncio.sleep(SAMPLE_S)


def workload(root: Path) -> Workload:
    """Return the demo's load. The longest prompt and its answer fit into LOAD_EXAMPLE's maxModelLen."""
    return Workload(SERVICE, corpus(root), prompt_words=110, max_tokens=160)


def tell(root: Path, *, name: str, picture: Path) -> None:
    """Run the demo in this terminal. The cluster is removed also after an error, which is raised."""
    width = min(shutil.get_terminal_size((110, 40)).columns, 120)
    asyncio.run(Story(root, Console(width=width), name=name, picture=picture).run())
