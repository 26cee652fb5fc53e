"""Compares scaling rules: tunes each on one part of the data, then reports its GPU-hours on another."""
