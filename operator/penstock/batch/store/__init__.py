"""Where files, batches and results are stored: a folder, or a bucket of S3."""
