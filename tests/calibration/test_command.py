"""`penstock calibrate` opens no more connections to an engine than it can run sequences."""

import asyncio
import json

from penstock.cli.simulation import calibrate

MAX_NUM_SEQS = 3
MODELS = json.dumps({"data": [{"id": "m", "max_model_len": 64}]})
METRICS = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="8"} 1.0\n'
EVENT = 'data: {"usage": {"completion_tokens": 1}}\n\n'
ANSWERS = {"/v1/models": MODELS, "/metrics": METRICS, "/v1/completions": EVENT}


class Engine:
    """An engine that counts its connections."""

    def __init__(self):
        self.num_open = self.most_open = 0
        self.handlers = []

    async def connected(self, reader, writer):
        self.handlers.append(asyncio.current_task())
        self.num_open += 1
        self.most_open = max(self.most_open, self.num_open)
        while head := await self.read_head(reader):
            path = head.split()[1].decode()
            if path == "/v1/completions":
                await asyncio.sleep(0)
            body = ANSWERS[path].encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        writer.close()
        await writer.wait_closed()
        self.num_open -= 1

    async def read_head(self, reader):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return b""
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                await reader.readexactly(int(line.split(b":")[1]))
        return head


async def test_connections_are_bounded(monkeypatch):
    engine = Engine()

    async def sweep(prober, limits, say):
        return await asyncio.gather(*(prober.ask(4, 1) for _ in range(5 * limits.max_num_seqs)))

    monkeypatch.setattr(calibrate, "sweep", sweep)
    monkeypatch.setattr(calibrate, "fit", len)
    server = await asyncio.start_server(engine.connected, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        _, limits, num_answers = await calibrate._measure(url, None, MAX_NUM_SEQS, 64, 0, print)
        await asyncio.gather(*engine.handlers)
    assert (limits.max_num_seqs, num_answers) == (MAX_NUM_SEQS, 5 * MAX_NUM_SEQS)
    assert engine.most_open == MAX_NUM_SEQS
