"""Covering arrays: few cases in which every pair of values of any two factors occurs."""

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def pairs(row: Mapping[str, Any]) -> set[tuple[tuple[str, Any], tuple[str, Any]]]:
    return set(itertools.combinations(sorted(row.items()), 2))


def covering_array(
    factors: Mapping[str, tuple[Any, ...]],
    is_allowed: Callable[[Mapping[str, Any]], bool],
    draw: random.Random,
) -> Iterator[dict[str, Any]]:
    """Greedy covering array: rows in which every allowed pair of values occurs.

    Each row starts with a missing pair; then each factor takes the value that adds most missing pairs.
    """
    values = [[(name, value) for value in options] for name, options in sorted(factors.items())]
    every = [
        pair
        for first, second in itertools.combinations(values, 2)
        for pair in itertools.product(first, second)
        if is_allowed(dict(pair))
    ]
    draw.shuffle(every)
    missing = set(every)
    for pair in every:
        if pair not in missing:
            continue
        row = dict(pair)
        for name in draw.sample(sorted(factors), len(factors)):
            if name not in row:
                options = [row | {name: value} for value in factors[name]]
                draw.shuffle(options)
                row = max(
                    filter(is_allowed, options), key=lambda option: len(pairs(option) & missing)
                )
        missing -= pairs(row)
        yield row
