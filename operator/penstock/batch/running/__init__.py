"""Runs batches: checks their files, sends their lines to the gateway, and writes their results."""
