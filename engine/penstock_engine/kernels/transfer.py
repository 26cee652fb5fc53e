"""Between the host's memory and a device's, without the host waiting.

What is computed next on the device has what was sent before. What was fetched is there when a mark
that was set afterwards is reached. On the CPU both are the same memory, and nothing is copied.
"""

import torch


def send(tensor: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    """tensor: in the host's memory; it may be overwritten as soon as this returns, but on the CPU."""
    if torch.device(device).type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def fetch(tensor: torch.Tensor) -> torch.Tensor:
    """In the host's memory, to be read behind a mark."""
    if tensor.device.type == "cpu":
        return tensor
    fetched = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return fetched.copy_(tensor, non_blocking=True)


class Mark:
    """A place in what the device has to do: behind all that it was given until now."""

    def __init__(self, device: torch.device | str) -> None:
        self._event: torch.cuda.Event | None = None
        if torch.device(device).type == "cuda":
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()

    def wait(self) -> None:
        """Until the device is there."""
        if self._event is not None:
            self._event.synchronize()
