"""A step whose forward pass is launched, and whose sampling and results are still pending.

The sampled token of a row may depend on the token before it, by penalties, bad words or a grammar. The
host knows that token only when the previous step is completed. So a step is sampled when the next one
is launched, or when it is waited for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from penstock_engine.core.step import ScheduledSequence, SequenceOutput
from penstock_engine.kernels.transfer import CompletionEvent
from penstock_engine.sampling.logprobs import LogprobBuffer
from penstock_engine.sampling.request_state import RequestStates
from penstock_engine.sampling.sampler import SampledTokens, sample


@dataclass(frozen=True, slots=True)
class ExtraOutputs:
    """Outputs of a step besides sampled tokens, by request id. embeddings: float32 [hidden_size]."""

    embeddings: Mapping[str, torch.Tensor]
    prompt_logprobs: Mapping[str, LogprobBuffer]


class PendingStep:
    """Handle of a launched step. Not thread-safe; used on the runner's thread."""

    def __init__(
        self,
        sequences: Sequence[ScheduledSequence],
        logits: torch.Tensor | None,
        extra: ExtraOutputs,
        states: RequestStates,
        device: torch.device | str,
    ) -> None:
        """sequences: those that sample tokens. logits: [rows, vocabulary], in their order; None if no
        sequence samples. extra: its copies to the host have started. states: of the requests, kept
        between steps."""
        self._sequences = sequences
        self._logits = logits
        self._extra = extra
        self._states = states
        self._device = device
        self._sampled: SampledTokens | None = None
        self._event: CompletionEvent | None = None
        self._failure: Exception | None = None

    @torch.inference_mode()
    def enqueue_sampling(self) -> None:
        """Enqueue the sampling on the device. The previous step must be completed.

        Only the first call has an effect. After a failure, every further call raises too.
        """
        if self._event is not None:
            return
        if self._failure is not None:
            raise RuntimeError("the sampling of this step has failed") from self._failure
        logits, self._logits = self._logits, None
        try:
            if logits is not None:
                self._sampled = sample(logits, self._sequences, self._states)
            self._event = CompletionEvent(self._device)
        except Exception as error:
            self._failure = error
            raise

    @property
    def tokens(self) -> torch.Tensor | None:
        """Sampled tokens on the device, int64 [rows]; None if no sequence samples."""
        return None if self._sampled is None else self._sampled.tokens

    @property
    def rows(self) -> dict[tuple[str, int], int]:
        """Maps (request id, position) of a sampled token to its first row in `tokens`."""
        rows, first = {}, 0
        for sequence in self._sequences:
            rows[sequence.request_id, sequence.end] = first
            first += sequence.num_rows
        return rows

    def wait(self) -> dict[str, SequenceOutput]:
        """Wait for the device. Returns the outputs of the step by request id."""
        self.enqueue_sampling()
        assert self._event is not None
        self._event.wait()
        results: dict[str, SequenceOutput] = {}
        if self._sampled is not None:
            ids = [sequence.request_id for sequence in self._sequences]
            results = dict(zip(ids, self._sampled.results(), strict=True))
        for request_id, vector in self._extra.embeddings.items():
            embedding = tuple(vector.tolist())
            results[request_id] = replace(results[request_id], embedding=embedding)
        for request_id, logprobs in self._extra.prompt_logprobs.items():
            result = results.get(request_id, SequenceOutput())
            if logprobs.are_numbers:
                results[request_id] = replace(result, prompt_logprobs=logprobs.all())
            else:
                results[request_id] = SequenceOutput(is_corrupt=True)
        return results
