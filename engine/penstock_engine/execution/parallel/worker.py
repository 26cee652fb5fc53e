"""Worker process that computes a rank other than 0:

    python -m penstock_engine.execution.parallel.worker FD

FD is a socket whose other end only rank 0 has. When that end is closed, the process exits at once,
whatever it is waiting for. So it does not outlive rank 0, even if that is killed.
"""

import logging
import os
import select
import signal
import socket
import sys
import threading
from contextlib import nullcontext

import torch

from penstock_engine.core.errors import ModelError
from penstock_engine.execution.paged_model import PagedModel
from penstock_engine.execution.parallel.messages import (
    AddAdapter,
    AddFactors,
    Channel,
    CopyBlocks,
    Forward,
    Logits,
    RankConfig,
    RemoveAdapter,
    Report,
)
from penstock_engine.execution.parallel.model import load_part
from penstock_engine.execution.parallel.ranks import ProcessGroup, join, reach_store
from penstock_engine.lora.checkpoint import Adapter, Factors
from penstock_engine.machine.cpu_threads import CpuThreads
from penstock_engine.telemetry import logs

logger = logging.getLogger(__name__)


def main(fd: int) -> None:
    # Rank 0 handles these signals by draining; a terminal sends them to all processes of the group.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    channel = Channel(socket.socket(fileno=fd))
    threading.Thread(target=exit_after_disconnect, args=(channel,), daemon=True).start()
    part = channel.receive()
    assert isinstance(part, RankConfig)
    logs.configure(part.log_format, part.log_level, rank=part.rank)
    try:
        work(channel, part)
    except EOFError:
        pass
    except ModelError as error:
        channel.send(Report("failed", error.reason, str(error)))
    except Exception:
        logger.exception("this rank ends, and the engine with it")
        os._exit(1)  # skips torch.distributed's clean-up, which would wait for other ranks
    exit_after_disconnect(channel)


def exit_after_disconnect(channel: Channel) -> None:
    """Wait until rank 0 closes its end of the socket, then end this process."""
    hang_up = select.poll()
    hang_up.register(channel.socket, 0)
    hang_up.poll()
    os._exit(0)


def work(channel: Channel, part: RankConfig) -> None:
    torch.set_num_threads(part.num_threads)
    threads = CpuThreads(part.num_threads) if part.config.device == "cpu" else None
    if part.config.device == "cuda":
        torch.cuda.set_device(part.rank)
    channel.send(Report("joining"))
    ranks = join(reach_store(part.store_port), part)
    model = load_part(part, ranks)
    channel.send(Report("ready"))
    serve(channel, model, ranks.group, threads)


@torch.inference_mode()
def serve(
    channel: Channel, model: PagedModel, group: ProcessGroup | None, threads: CpuThreads | None
) -> None:
    """Execute messages of rank 0 until the socket is closed.

    threads: adapts the number of threads to the CPU's load; None on other devices.
    """
    factors: dict[str, Factors] = {}
    while True:
        match channel.receive():
            case AddFactors(target, pair):
                factors[target] = pair
            case AddAdapter(name, rank) if model.adapters is not None:
                model.adapters.add(name, Adapter(rank, factors))
                factors = {}
            case RemoveAdapter(name) if model.adapters is not None:
                model.adapters.remove(name)
            case CopyBlocks(copies):
                model.copy_blocks(copies)
            case Forward(sequences):
                with nullcontext() if threads is None else threads.step():
                    model.forward(sequences)
            case Logits(num_rows) if group is not None:
                model.logits(group.broadcast(model.empty_rows(num_rows)))
            case message:
                raise ValueError(f"{message} is not for a rank at work")


if __name__ == "__main__":
    main(int(sys.argv[1]))
