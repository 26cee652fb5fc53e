"""Ranks of a tensor, pipeline or expert parallel engine, in processes of one pod."""
