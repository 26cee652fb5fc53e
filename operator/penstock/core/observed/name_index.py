"""Index of the model names that routes, services and adapters claim."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from penstock.core.observed.name_claims import (
    NameClaim,
    ObjectKey,
    Precedence,
    Standing,
    describe_conflict,
    holders,
    short_name_holder,
)


class NameIndex:
    """The claims of all objects, by model name. changed: called with each claim that is new or gone."""

    def __init__(
        self,
        claims: Iterable[NameClaim] = (),
        *,
        changed: Callable[[NameClaim], None] = lambda _: None,
    ) -> None:
        self._by_name: dict[str, dict[ObjectKey, NameClaim]] = {}
        self._by_object: dict[ObjectKey, NameClaim] = {}
        self._changed = changed
        for claim in claims:
            self.put(claim)

    def get(self, key: ObjectKey) -> NameClaim | None:
        """Return the claim of an object; None if it has none."""
        return self._by_object.get(key)

    def put(self, claim: NameClaim) -> None:
        """Add a claim, in place of an earlier one of the same object."""
        if self.get(claim.key) == claim:
            return
        self.remove(claim.key)
        self._by_object[claim.key] = claim
        self._by_name.setdefault(claim.model_name, {})[claim.key] = claim
        self._changed(claim)

    def remove(self, key: ObjectKey) -> None:
        """Remove the claim of an object, if it has one."""
        claim = self._by_object.pop(key, None)
        if claim is not None:
            claims = self._by_name[claim.model_name]
            del claims[key]
            if not claims:
                del self._by_name[claim.model_name]
            self._changed(claim)

    def settle(self, own: NameClaim, *, yields: bool) -> str:
        """Decide the short name of a claim that the next status of its object is about to store.

        yields: by that status. Returns why the name leads to another namespace; empty if it does not. The
        claim counts as stored from now on. So two objects do not both take a name before the watch reports
        the status of the first.
        """
        conflict = describe_conflict(self.rivals(own), own)
        standing = own.precedence.standing
        if standing is Standing.READY:
            standing = Standing.ESTABLISHED
        self.put(replace(own, precedence=Precedence(standing, yields, bool(conflict))))
        return conflict

    def record_holder(self, own: NameClaim) -> bool:
        """Record that the holder of a claim's name holds it.

        Returns False if it had to be recorded: decide the claim at the next pass. When a name becomes free,
        the next in order answers at once, while its own status says that it yields. An older claim must not
        be decided in this moment: of two that yield, it would come first. The holder is reported as changed.
        """
        rivals = self.rivals(own)
        if len(rivals) == 1:
            return True
        in_namespace = holders(each for each in rivals if each.kind == own.kind)[own.namespace]
        of_short_name = short_name_holder(rivals)
        for holder, confirmed in (
            (in_namespace, replace(in_namespace.precedence, yields=False)),
            (of_short_name, replace(of_short_name.precedence, yields_short=False)),
        ):
            is_established = confirmed.standing is Standing.ESTABLISHED
            if is_established and holder.key != own.key and holder.precedence != confirmed:
                self.put(replace(holder, precedence=confirmed))
                return False
        return True

    def rivals(self, own: NameClaim) -> tuple[NameClaim, ...]:
        """Return all claims on the model name of a claim: that one, and those of other objects."""
        claims = self._by_name.get(own.model_name, {}).values()
        return own, *(each for each in claims if each.key != own.key)
