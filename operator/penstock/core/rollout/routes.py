"""Whether gateways obey the traffic that they were told: each says which generation of it it has."""

from collections.abc import Mapping

# A gateway follows within a second and is asked every two. One that has not followed by then hangs, or
# has lost the API server: it must not keep a rollback from ending.
LIMIT_S = 30.0
# How often it is looked whether all have followed.
LOOK_S = 1.0

# By gateway: the generation that it obeys, None of one that should answer and does not.
AppliedGenerations = Mapping[str, int | None]


def behind(applied_generations: AppliedGenerations | None, generation: int) -> str:
    """Who does not obey this generation or a later one, in words; empty when all do.

    applied_generations: None while the gateways are not known.
    """
    if applied_generations is None:
        return "the gateways are not known yet"
    for name, said in sorted(applied_generations.items()):
        if said is None:
            return f"gateway {name} does not report the traffic generation that it applies"
        if said < generation:
            return f"gateway {name} applies traffic generation {said}, not {generation} yet"
    return ""
