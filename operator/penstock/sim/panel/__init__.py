"""A panel of random loads, each drawn from a seed, to compare scaling rules on loads nobody tuned them on.

    load.py           draws a whole scenario from a seed: arrivals, lengths, engine, start-up time, objectives

Seeds 1000 to 1059 are for tuning, seeds 0 to 59 for reported figures and nothing else.
"""
