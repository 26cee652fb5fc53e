"""What a grammar may cost. The compiling process and the engine hold to the same limits."""

from collections.abc import Collection

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

COMPILE_TIMEOUT_S = 1.2
MAX_COMPILE_CPU_S = 0.5
MAX_MASK_CPU_S = 0.05
MAX_MEMORY_BYTES = 4 * 2**30  # of addresses; a vocabulary of 150,000 tokens takes a tenth

# A mask of any grammar that was accepted takes a few milliseconds at most: that is what the fuel
# of a step is for.
LIMITS = LLParserLimits(
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=50_000,
    step_max_items=50_000,
    max_items_in_row=2000,
    max_lexer_states=50_000,
    max_grammar_size=500_000,
    verbose_errors=False,
)


def make_tokenizer(
    tokenizer_json: str, vocab_size: int, eos_token_ids: Collection[int]
) -> LLTokenizer:
    """vocab_size: of the logits, which may have more columns than there are tokens.

    Raises ValueError when the bytes of the tokens cannot be told.
    """
    ends = sorted(eos_token_ids)
    return LLTokenizer(tokenizer_json, n_vocab=vocab_size, eos_token=ends or None)


def make_matcher(tokenizer: LLTokenizer, text: str) -> LLMatcher:
    """Never raises: what is wrong with `text`, get_error of the matcher tells."""
    return LLMatcher(tokenizer, text, log_level=0, limits=LIMITS)
