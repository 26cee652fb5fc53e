"""Checks the draft model or head of speculative decoding by its files. Imports no torch."""

from pathlib import Path

from penstock_engine.core.errors import ModelError
from penstock_engine.memory.model_files import check_model, check_tensors, read_all_headers
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.parameters import draft_head_parameters
from penstock_engine.options.config import EngineConfig


def check_draft(
    config: EngineConfig, draft_dir: Path, dtype: str, model: ModelConfig, max_model_len: int
) -> tuple[ModelConfig, int]:
    """Configuration of the draft model or head, and the bytes of its weights. Raises ModelError."""
    if config.has_draft_head:
        return _draft_head(config, draft_dir, dtype, model)
    try:
        draft, tensor_bytes = check_model(draft_dir, dtype=dtype)
    except ModelError as error:
        raise ModelError("BadDraftModel", f"the draft model ({draft_dir}): {error}") from error
    if draft.vocab_size != model.vocab_size:
        raise ModelError(
            "DraftMismatch",
            f"the draft model has {draft.vocab_size} tokens, the model {model.vocab_size}, so they have "
            "different tokenizers",
            {"DraftModel": None},
        )
    if draft.max_model_len < max_model_len:
        raise ModelError(
            "DraftMismatch",
            f"the draft model was made for {draft.max_model_len} tokens",
            {"ModelLength": draft.max_model_len},
        )
    return draft, sum(tensor_bytes.values())


def _draft_head(
    config: EngineConfig, head_dir: Path, dtype: str, model: ModelConfig
) -> tuple[ModelConfig, int]:
    """Configuration of a draft head and the bytes of its weights. Raises ModelError.

    A head has neither an embedding nor an output projection.
    """
    try:
        head = ModelConfig.load(head_dir)
        headers = read_all_headers(head_dir)
    except ModelError as error:
        raise ModelError("BadDraftModel", f"the draft head ({head_dir}): {error}") from error
    if config.layout.num_ranks > 1:
        raise ModelError(
            "DraftMismatch",
            "a head drafts only for a model that is on one rank: remove --speculative-config, or set "
            "--tensor-parallel-size to 1",
        )
    if head.hidden_size != model.hidden_size:
        raise ModelError(
            "DraftMismatch",
            f"the head was made for states of {head.hidden_size} numbers, the model's have "
            f"{model.hidden_size}",
            {"DraftModel": None},
        )
    fc = headers.get("fc.weight")
    if fc is None or fc.shape != (head.hidden_size, 2 * head.hidden_size):
        raise ModelError(
            "DraftMismatch",
            "the head has no fc.weight that reads a token and a state",
            {"DraftModel": None},
        )
    parameters = draft_head_parameters(head, has_bias="fc.bias" in headers)
    try:
        tensor_bytes = check_tensors(head_dir, head, parameters, None, dtype)
    except ModelError as error:
        raise ModelError("BadDraftModel", f"the draft head ({head_dir}): {error}") from error
    return head, sum(tensor_bytes.values())
