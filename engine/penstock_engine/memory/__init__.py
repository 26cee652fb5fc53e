"""Preflight, without torch: checks a model's and a draft's files, and plans memory and batch limits."""
