"""Streams the safetensors files of a bucket with runai-model-streamer, and prints what it took as JSON.

Runs in the Python that has the package, without Penstock. Arguments: URI of the bucket's folder.
"""

import json
import sys
import time
from pathlib import Path

import torch


def main(uri: str) -> None:
    from runai_model_streamer import SafetensorsStreamer, list_safetensors

    start_s, start_cpu_s = time.monotonic(), time.process_time()
    paths = list_safetensors(uri)
    with SafetensorsStreamer() as streamer:
        streamer.stream_files(paths)
        tensors = dict(streamer.get_tensors())
        checksum = sum(int(t.flatten().view(torch.int64).sum()) for t in tensors.values())
        seconds, cpu_s = time.monotonic() - start_s, time.process_time() - start_cpu_s
    status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    peak_bytes, anonymous_bytes = (
        int(status[field].split()[0]) << 10 for field in ("VmHWM", "RssAnon")
    )
    print(json.dumps([seconds, cpu_s, peak_bytes, anonymous_bytes, checksum % 2**64]))


if __name__ == "__main__":
    main(sys.argv[1])
