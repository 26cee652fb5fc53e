"""Communication between ranks with torch.distributed, on the loopback address only.

The backend is NCCL on CUDA, with one device for each rank, and gloo on the CPU.
"""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from penstock_engine.execution.parallel.messages import RankConfig
from penstock_engine.models.shard import Layout

LOOPBACK = "127.0.0.1"
# Network interface on which both backends listen.
INTERFACE = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}

JOIN_TIMEOUT = timedelta(seconds=120)
# Timeout of a collective operation. It exceeds any part of a step, so a rank that exceeds it hangs. The
# class Workers logs slow steps much earlier.
STEP_TIMEOUT = timedelta(minutes=5)


class ProcessGroup:
    """Tensor-parallel group: collective operations of the ranks of one pipeline stage."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self.rank = group.rank()
        self.size = group.size()

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        dist.all_reduce(x, group=self._group)
        return x

    def gather(self, x: torch.Tensor, widths: Sequence[int]) -> torch.Tensor:
        missing = max(widths) - x.shape[-1]
        padded = torch.nn.functional.pad(x, (0, missing)) if missing else x.contiguous()
        if self.rank:
            dist.gather(padded, group=self._group, group_dst=0)
            return x
        parts = [torch.empty_like(padded) for _ in widths]
        dist.gather(padded, parts, group=self._group, group_dst=0)
        return torch.cat(
            [part[..., :width] for part, width in zip(parts, widths, strict=True)], dim=-1
        )

    def broadcast(self, x: torch.Tensor) -> torch.Tensor:
        """Return rank 0's x on all ranks. The x of other ranks may be overwritten."""
        x = x.contiguous()
        dist.broadcast(x, group=self._group, group_src=0)
        return x


class Ring:
    """Sends hidden states to the next pipeline stage and receives them from the previous one.

    The last stage sends to the first, which computes the logits.
    """

    def __init__(self, rank: int, layout: Layout) -> None:
        self.is_first = rank < layout.tensor
        self._next = (rank + layout.tensor) % layout.num_ranks
        self._previous = (rank - layout.tensor) % layout.num_ranks

    def send(self, x: torch.Tensor) -> None:
        dist.send(x.contiguous(), self._next)

    def receive(self, x: torch.Tensor) -> torch.Tensor:
        dist.recv(x, self._previous)
        return x


@dataclass(frozen=True, slots=True)
class Ranks:
    """Communication of one rank.

    group: of its stage; None without tensor parallelism. stages: None without pipeline parallelism.
    """

    group: ProcessGroup | None
    stages: Ring | None


def open_store() -> dist.TCPStore:
    """Open the store for the rendezvous of the ranks, on a free port of the loopback address.

    torch's own server would listen on all addresses.
    """
    listener = socket.create_server((LOOPBACK, 0))
    port = listener.getsockname()[1]
    return dist.TCPStore(
        LOOPBACK,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=JOIN_TIMEOUT,
        master_listen_fd=listener.detach(),
    )


def reach_store(port: int) -> dist.TCPStore:
    return dist.TCPStore(LOOPBACK, port, is_master=False, timeout=JOIN_TIMEOUT)


def join(store: dist.Store, part: RankConfig) -> Ranks:
    """Join the process group, waiting for all other ranks. A process is in one group at a time."""
    os.environ.update(INTERFACE)
    rank, layout = part.rank, part.config.layout
    dist.init_process_group(
        "nccl" if part.config.device == "cuda" else "gloo",
        store=store,
        rank=rank,
        world_size=layout.num_ranks,
        timeout=STEP_TIMEOUT,
    )
    group = None
    for first in range(0, layout.num_ranks, layout.tensor) if layout.tensor > 1 else ():
        # torch requires that every rank creates every group.
        stage = range(first, first + layout.tensor)
        made = dist.new_group(list(stage), timeout=STEP_TIMEOUT)
        if rank in stage:
            group = ProcessGroup(made)
    return Ranks(group, Ring(rank, layout) if layout.pipeline > 1 else None)


def leave() -> None:
    """Leave the process group, if the process is in one. It may join another one afterwards."""
    if dist.is_initialized():
        dist.destroy_process_group()
