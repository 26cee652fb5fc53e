"""The Hugging Face hub of a local cluster: whether its pods reach that, and a mirror of it if they do not."""
