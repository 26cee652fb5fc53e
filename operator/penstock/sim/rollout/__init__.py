"""Simulates many canaries to measure how often each judge errs and how long it takes."""
