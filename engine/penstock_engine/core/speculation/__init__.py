"""Speculative decoding: settings, drafters without a model, how many drafts pay off, and who gets them."""
