"""The engine: serves one language model over HTTP, with a paged KV cache and continuous batching."""
