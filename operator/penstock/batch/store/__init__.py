"""Stores of files, batches and results: a folder, or a bucket of S3."""
