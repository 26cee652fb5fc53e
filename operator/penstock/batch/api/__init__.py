"""OpenAI's API of files and batches."""
