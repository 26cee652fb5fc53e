"""A limit that several owners share, none of whom can take all of it from the others."""


class FairLimit:
    """A limit on what all owners hold together. An owner may hold half of what the others leave.

    The first owner gets at most a half, the next one half of the rest, and so on. As the first ones give
    back, n owners with enough demand tend to 1 / (n + 1) each. These are the dynamic thresholds of Choudhury
    and Hahne (1998) with alpha 1. held: by all owners together.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held_by: dict[str, int] = {}
        self.held = 0

    def held_by(self, owner: str) -> int:
        """The amount that the owner holds."""
        return self._held_by.get(owner, 0)

    def bound(self, owner: str) -> int:
        """The most that the owner may hold now: at least 1 if the others leave something.

        The owner may hold more than that, if others came later.
        """
        left = self._limit - (self.held - self.held_by(owner))
        return min(left, max(1, left // 2))

    def take(self, owner: str, amount: int) -> bool:
        """Let the owner hold this much more. Returns False, and changes nothing, if it may not."""
        if not amount:  # nothing is always allowed
            return True
        if self.held_by(owner) + amount > self.bound(owner):
            return False
        self.add(owner, amount)
        return True

    def add(self, owner: str, amount: int) -> None:
        """Let the owner hold this much more, or less if negative, whatever it may hold."""
        self.held += amount
        if held := self.held_by(owner) + amount:
            self._held_by[owner] = held
        else:
            self._held_by.pop(owner, None)

    def give_back(self, owner: str, amount: int) -> None:
        """Undo `take` or `add`."""
        self.add(owner, -amount)

    def move(self, amount: int, owner: str, new_owner: str) -> None:
        """Let another owner hold this much of what the owner holds, whatever it may hold."""
        self.add(owner, -amount)
        self.add(new_owner, amount)
