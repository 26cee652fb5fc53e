"""Between text and tokens: tokenizer, chat template, incremental detokenization."""
