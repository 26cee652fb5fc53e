"""A panel of random loads, each drawn from a seed, to compare scaling rules on loads nobody tuned them on.

    load.py           draws a whole scenario from a seed: arrivals, lengths, engine, start-up time, objectives
    best_fixed.py     finds the smallest fixed number of replicas that attains the objectives
    lower_bound.py    bounds the GPU-hours of every plan that attains them from below
    no_speculation.py bounds the attainment of rules that never run more than the past has shown necessary
    measure.py        measures rules on loads in parallel processes, with a cache of finished runs
    table.py          compares the rules per load and per class of loads

Seeds 1000 to 1059 are for tuning, seeds 0 to 59 for reported figures and nothing else.
"""
