"""Reconciles InferenceServices: queue, reads, plan, writes, status and metrics."""
