"""Limits on the cost of a grammar, shared by the compiling process and the engine."""

from collections.abc import Collection

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

COMPILE_TIMEOUT_S = 1.2  # wall-clock time of one grammar in the compiling process
MAX_COMPILE_CPU_S = 0.5
MAX_MASK_CPU_S = 0.05  # one token mask
MAX_MEMORY_BYTES = 4 * 2**30  # address space; a vocabulary of 150,000 tokens takes a tenth

# The fuel of a step bounds the time of one mask of an accepted grammar to a few milliseconds.
LIMITS = LLParserLimits(
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=50_000,
    step_max_items=50_000,
    max_items_in_row=2000,
    # About 400 bytes each. The masks of a bounded string compute about four for each character. At the
    # limit GrammarConstraint starts again with those of its own tokens, about one for each character.
    max_lexer_states=100_000,
    max_grammar_size=500_000,
    verbose_errors=False,
)


def make_tokenizer(
    tokenizer_json: str, vocab_size: int, eos_token_ids: Collection[int]
) -> LLTokenizer:
    """Builds llguidance's tokenizer from a tokenizer.json.

    vocab_size: columns of the logits, which may be more than the tokens. Raises ValueError if the
    tokenizer does not say which bytes its tokens stand for.
    """
    ends = sorted(eos_token_ids)
    return LLTokenizer(tokenizer_json, n_vocab=vocab_size, eos_token=ends or None)


def make_matcher(tokenizer: LLTokenizer, text: str) -> LLMatcher:
    """Compiles a grammar. Never raises: the matcher's get_error() returns the error, if any."""
    return LLMatcher(tokenizer, text, log_level=0, limits=LIMITS)
