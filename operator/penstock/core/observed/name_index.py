"""Index of the model names that routes, services and adapters claim."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from penstock.core.observed.name_claims import (
    CLAIM_KINDS,
    ClaimKind,
    NameClaim,
    ObjectKey,
    Precedence,
    Standing,
    order_in_namespace,
    order_of_namespaces,
)
from penstock.core.observed.sorted_claims import SortedClaims


class NameIndex:
    """The claims of all objects, and which of them have the names.

    affected: called with each other claim whose short name, or whose name in its namespace among its kind,
    gets another holder by a change. The cost of a change or a question does not grow with the number of
    claims on a name, apart from the calls of `affected`.
    """

    def __init__(
        self,
        claims: Iterable[NameClaim] = (),
        *,
        affected: Callable[[NameClaim], None] = lambda _: None,
    ) -> None:
        self._by_object = {claim.key: claim for claim in claims}
        by_name: dict[str, list[NameClaim]] = {}
        in_namespaces: dict[tuple[str, str, ClaimKind], list[NameClaim]] = {}
        for claim in self._by_object.values():
            by_name.setdefault(claim.model_name, []).append(claim)
            in_namespaces.setdefault(_group(claim), []).append(claim)
        self._by_name = {
            name: SortedClaims(order_of_namespaces, found) for name, found in by_name.items()
        }
        self._in_namespaces = {
            group: SortedClaims(order_in_namespace, found) for group, found in in_namespaces.items()
        }
        # Claims as their statuses state them, of objects that are recorded to hold a name nevertheless.
        self._stated: dict[ObjectKey, NameClaim] = {}
        self._affected = affected

    def get(self, key: ObjectKey) -> NameClaim | None:
        """Return the claim of an object; None if it has none."""
        return self._by_object.get(key)

    def put(self, claim: NameClaim) -> None:
        """Add a claim, in place of an earlier one of the same object.

        A watch may report again the status that an object had when it was recorded as a holder. That changes
        nothing.
        """
        if self._stated.get(claim.key) != claim:
            self._stated.pop(claim.key, None)
            self._replace(claim.key, claim)

    def remove(self, key: ObjectKey) -> None:
        """Remove the claim of an object, if it has one."""
        self._replace(key, None)

    def settle(self, own: NameClaim, *, yields: bool) -> str:
        """Decide the short name of a claim that the next status of its object is about to store.

        yields: by that status. Returns why the name leads to another namespace; empty if it does not. The
        claim counts as stored from now on. So two objects do not both take a name before the watch reports
        the status of the first.
        """
        conflict = self.describe_conflict(own)
        standing = own.precedence.standing
        if standing is Standing.READY:
            standing = Standing.ESTABLISHED
        settled = replace(own, precedence=Precedence(standing, yields, bool(conflict)))
        last = self.get(own.key)
        # An object that was deleted meanwhile holds no name, nor does it for one of its name since.
        if last is not None and last.created_s == own.created_s:
            self._replace(own.key, settled)
        return conflict

    def record_holder(self, own: NameClaim) -> bool:
        """Record which objects hold a claim's name: in its namespace, and as the short name.

        Returns False if it had to be recorded: decide the claim at the next pass. When a name becomes free,
        the next in order answers at once, while its own status says that it yields. An older claim must not
        be decided in this moment: of two that yield, it would come first.
        """
        return self.record_namespace_holder(own) and self.record_short_name_holder(own)

    def record_namespace_holder(self, own: NameClaim) -> bool:
        """Record the holder of the name in the claim's namespace. Returns as `record_holder` does."""
        holder = self.holder(own, kinds=(own.kind,))
        return self._record(own, holder, replace(holder.precedence, yields=False))

    def record_short_name_holder(self, own: NameClaim) -> bool:
        """Record the holder of the short name. Returns as `record_holder` does."""
        holder = self.short_name_holder(own)
        return self._record(own, holder, replace(holder.precedence, yields_short=False))

    def holder(self, own: NameClaim, *, kinds: Collection[ClaimKind] = CLAIM_KINDS) -> NameClaim:
        """Return the claim that gets the name in the namespace of `own`.

        own: a claim, which replaces the one of its object in the index. kinds: of the objects that count,
        among them that of `own`.
        """
        found = [own]
        for kind in kinds:
            rivals = self._in_namespaces.get((own.model_name, own.namespace, kind))
            if rivals and (first := rivals.first(but=own.key)) is not None:
                found.append(first)
        return min(found, key=order_in_namespace)

    def short_name_holder(self, own: NameClaim) -> NameClaim:
        """Return the claim that gets the short name of `own`, which replaces its object's in the index.

        The name belongs to the namespace of the first claim, and leads to what has the name there.
        """
        rivals = self._by_name.get(own.model_name)
        other = rivals.first(but=own.key) if rivals else None
        first = own if other is None else min(own, other, key=order_of_namespaces)
        return self.holder(own if first.namespace == own.namespace else first)

    def describe_conflict(self, own: NameClaim) -> str:
        """Why the short name does not lead to the namespace of a claim; empty if it does."""
        holder = self.short_name_holder(own)
        if holder.namespace == own.namespace:
            return ""
        return (
            f"clients reach {own.model_name!r} of this namespace as {own.namespace}/{own.model_name} only: "
            f"the name alone is that of the {holder.kind} {holder.namespace}/{holder.name}, which had "
            "it first"
        )

    def _record(self, own: NameClaim, holder: NameClaim, confirmed: Precedence) -> bool:
        """Give an established holder its confirmed precedence. Returns False if it had another one."""
        is_confirmed = holder.precedence == confirmed
        if is_confirmed or confirmed.standing is not Standing.ESTABLISHED or holder.key == own.key:
            return True
        stated = self._stated.get(holder.key, holder)
        self._replace(holder.key, replace(holder, precedence=confirmed))
        self._stated[holder.key] = stated
        return False

    def _replace(self, key: ObjectKey, claim: NameClaim | None) -> None:
        """Put a claim in the place of the last one of the object. None: it has none any more."""
        last = self.get(key)
        if last == claim:
            return
        self._stated.pop(key, None)
        by_name = {each.model_name: each for each in (last, claim) if each is not None}
        before = {name: self._holders(each) for name, each in by_name.items()}
        if last is not None:
            del self._by_object[key]
            self._discard(last)
        if claim is not None:
            self._by_object[key] = claim
            self._by_name.setdefault(claim.model_name, SortedClaims(order_of_namespaces)).add(claim)
            of_kind = SortedClaims(order_in_namespace)
            self._in_namespaces.setdefault(_group(claim), of_kind).add(claim)
        for name, each in by_name.items():
            self._report(each, before[name], self._holders(each))

    def _discard(self, claim: NameClaim) -> None:
        """Take a claim out of its groups, and drop those that are empty."""
        rivals, of_kind = self._by_name[claim.model_name], self._in_namespaces[_group(claim)]
        rivals.remove(claim)
        of_kind.remove(claim)
        if not rivals:
            del self._by_name[claim.model_name]
        if not of_kind:
            del self._in_namespaces[_group(claim)]

    def _holders(self, claim: NameClaim) -> tuple[ObjectKey | None, ObjectKey | None]:
        """Return the holders of a claim's short name, and of its name among its kind in its namespace."""
        rivals = self._by_name.get(claim.model_name)
        of_kind = self._in_namespaces.get(_group(claim))
        first = rivals.first() if rivals else None
        first_of_kind = of_kind.first() if of_kind else None
        return (
            None if first is None else self.holder(first).key,
            None if first_of_kind is None else first_of_kind.key,
        )

    def _report(
        self,
        changed: NameClaim,
        before: tuple[ObjectKey | None, ObjectKey | None],
        after: tuple[ObjectKey | None, ObjectKey | None],
    ) -> None:
        """Report the other claims for which the holders of the name of a changed claim are others."""
        if before == after:
            return
        (short, of_kind), (next_short, next_of_kind) = before, after
        # In the namespace that has the name before and after, the short name leads nowhere else.
        keeping = short[1] if short and next_short and short[1] == next_short[1] else None
        for rival in tuple(self._by_name.get(changed.model_name, ())):
            is_of_group = _group(rival) == _group(changed) and of_kind != next_of_kind
            is_told_of_short_name = short != next_short and rival.namespace != keeping
            if rival.key != changed.key and (is_of_group or is_told_of_short_name):
                self._affected(rival)


def _group(claim: NameClaim) -> tuple[str, str, ClaimKind]:
    """Model name, namespace and kind: the claims of one group have one name in their namespace."""
    return claim.model_name, claim.namespace, claim.kind
