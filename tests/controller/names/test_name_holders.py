"""Random changes of objects that claim the same model names: who has answered under a name keeps it."""

from dataclasses import dataclass, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.controller.names.named_objects import NOW, NamedObject, Operator, new_object, renamed

from penstock.core.observed.name_claims import (
    CLAIM_KINDS,
    ClaimKind,
    ObjectKey,
    Standing,
)
from penstock.core.observed.name_index import NameIndex
from penstock.gateway.snapshots.builder import SnapshotBuilder
from penstock.gateway.snapshots.snapshot import Claim, Snapshot, Unknown, name_claim

NAMESPACES, MODELS = ("a", "b"), ("m", "n")
KEYS: tuple[ObjectKey, ...] = tuple(
    (kind, namespace, name)
    for kind, names in (("ModelRoute", "x"), ("InferenceService", "xy"), ("LoraAdapter", "x"))
    for namespace in NAMESPACES
    for name in names
)  # type: ignore[assignment]
# More objects at a time have the same conflicts, and are found less often.
MAX_OBJECTS = 4
SHORT_AND_FULL = (
    *MODELS,
    *(f"{namespace}/{model}" for namespace in NAMESPACES for model in MODELS),
)


@dataclass(frozen=True)
class Holder:
    """The object that has answered under a name."""

    key: ObjectKey
    uid: str


# Most objects answer, and claim the same name.
NAMES = st.sampled_from(("m", "m", "m", "n"))
OFTEN, SELDOM = (
    st.sampled_from((True, True, True, False)),
    st.sampled_from((False, False, False, True)),
)
NUMBERS = st.integers(0, MAX_OBJECTS - 1)


class NameHolders(RuleBasedStateMachine):
    """Users, the operator and a gateway that change, decide and read one step at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[ObjectKey, NamedObject] = {}
        self.operator = Operator(set(CLAIM_KINDS))
        self.gateway = SnapshotBuilder()
        self.answered: dict[str, Holder] = {}
        self.num_created = 0
        self.lost: set[ObjectKey] = set()
        self.has_been_read: set[str] = set()
        self.could_answer: set[tuple[str, str]] = set()

    # What users do.

    @rule(
        key=st.sampled_from(KEYS), model=NAMES, created_s=st.integers(0, 9),
        answers=OFTEN, is_refused=SELDOM,
    )  # fmt: skip
    def create(
        self, key: ObjectKey, model: str, created_s: int, answers: bool, is_refused: bool
    ) -> None:
        """The clock of the API server may have been set back since the others were created."""
        if key not in self.objects:
            self.num_created += 1
            body = new_object(key, f"uid-{self.num_created}", model, created_s)
            self._store(NamedObject(body, answers, is_refused))

    @rule(number=NUMBERS)
    def delete(self, number: int) -> None:
        if (each := self._pick(number)) is not None:
            del self.objects[each.key]
            self.lost.discard(each.key)
            self.operator.watch(each.key, None)

    @rule(number=NUMBERS)
    def delete_later(self, number: int) -> None:
        """A finalizer delays the end of the object."""
        each = self._pick(number)
        if each is not None and not each.is_terminating:
            metadata = each.body["metadata"] | {"deletionTimestamp": NOW}
            self._store(replace(each, body=each.body | {"metadata": metadata}))

    @rule(number=NUMBERS, model=NAMES)
    def rename(self, number: int, model: str) -> None:
        each = self._pick(number)
        # Nobody can tell that an object had another name between two passes of the operator.
        if each is not None and each.status.get("modelName") in (None, each.model_name):
            self._store(renamed(each, model))

    @rule(number=NUMBERS, answers=OFTEN, is_refused=SELDOM)
    def change(self, number: int, answers: bool, is_refused: bool) -> None:
        """Engines come up or fail, and a spec gets or loses an error."""
        if (each := self._pick(number)) is not None:
            self.objects[each.key] = replace(each, answers=answers, is_refused=is_refused)

    @rule(number=NUMBERS)
    def annotate(self, number: int) -> None:
        """The watch reports the object again, with the same claim."""
        if (each := self._pick(number)) is not None:
            self.operator.watch(each.key, each.body)

    # What the operator does.

    @rule(number=NUMBERS)
    def reconcile(self, number: int) -> None:
        if (each := self._pick(number)) is not None:
            self._reconcile(each.key)

    @rule()
    def reconcile_all(self) -> None:
        for key in self.objects:
            self._reconcile(key)

    @precondition(lambda self: not self.lost)
    @rule(kinds=st.sets(st.sampled_from(CLAIM_KINDS)))
    def restart_operator(self, kinds: set[ClaimKind]) -> None:
        """The watches of the new operator have listed some kinds so far."""
        self.operator = Operator()
        for kind in kinds:
            self.list_kind(kind)

    @rule(kind=st.sampled_from(CLAIM_KINDS))
    def list_kind(self, kind: ClaimKind) -> None:
        if kind not in self.operator.listed:
            self.operator.listed.add(kind)
            for key, each in self.objects.items():
                if key[0] == kind:
                    self.operator.watch(key, each.body)

    # What happens to the cluster.

    @precondition(lambda self: self.operator.is_complete)
    @rule(number=NUMBERS)
    def lose_status(self, number: int) -> None:
        """A restore from a backup, or a client that replaces the status."""
        each = self._pick(number)
        if each is not None and each.status:
            self.lost.add(each.key)
            self._store(replace(each, body=each.body | {"status": {}}))

    @precondition(lambda self: not self.lost)
    @rule()
    def restart_gateway(self) -> None:
        self.gateway = SnapshotBuilder()

    # What must hold.

    @invariant()
    def who_has_answered_keeps_the_name(self) -> None:
        snapshot = self._snapshot()
        for name in SHORT_AND_FULL:
            found, last = snapshot.resolve(name), self.answered.pop(name, None)
            if last is not None and self._still_claims(snapshot, last, name):
                assert not isinstance(found, Unknown), f"nobody answers {name}"
                assert _key(found) == last.key or _takes_precedence(found, last), (
                    f"{name} went from {last.key} to {_key(found)}"
                )
            if not isinstance(found, Unknown) and found.precedence.standing is Standing.ESTABLISHED:
                uid = self.objects[_key(found)].body["metadata"]["uid"]
                self.answered[name] = Holder(_key(found), uid)

    @invariant()
    def operator_and_gateway_agree(self) -> None:
        if self.operator.is_complete:
            snapshot, index = self._snapshot(), self.operator.names.index
            for claim in [claim for key in KEYS if (claim := index.get(key)) is not None]:
                model = claim.model_name
                assert index.short_name_holder(claim).key == _key_at(snapshot, model)
                assert index.holder(claim).key == _key_at(snapshot, f"{claim.namespace}/{model}")

    @invariant()
    def what_has_not_answered_changes_nothing(self) -> None:
        snapshot = self._snapshot()
        claims = [name_claim(each) for each in snapshot._claims()]
        for model in MODELS:
            rivals = [each for each in claims if each.model_name == model]
            answering = [
                each for each in rivals if each.precedence.standing is Standing.ESTABLISHED
            ]
            if answering:
                of_all, of_answering = map(NameIndex, (rivals, answering))
                own = answering[0]
                assert of_all.short_name_holder(own) == of_answering.short_name_holder(own)

    @invariant()
    def a_name_is_kept_by_what_could_answer_under_it(self) -> None:
        for each in self._snapshot()._claims():
            if each.kind != "InferenceService" and each.precedence.standing is Standing.ESTABLISHED:
                uid = self.objects[_key(each)].body["metadata"]["uid"]
                assert (uid, each.served_name) in self.could_answer, f"{_key(each)} never answered"

    def teardown(self) -> None:
        """After three passes over all objects the next one writes nothing.

        The first may refuse an object, the second gives its name to another one of its namespace, and the
        third tells those of other namespaces.
        """
        for kind in CLAIM_KINDS:
            self.list_kind(kind)
        for _ in range(3):
            for key in self.objects:
                self._reconcile(key)
                self.who_has_answered_keeps_the_name()
        for key, each in self.objects.items():
            assert self.operator.next_status(each) == each.status, f"{key} is written again"
        self.operator_and_gateway_agree()

    def _pick(self, number: int) -> NamedObject | None:
        """One of the objects that exist; None if there is none."""
        found = list(self.objects.values())
        return found[number % len(found)] if found else None

    def _reconcile(self, key: ObjectKey) -> None:
        if not self._pass(key):
            # The holder of the name is recorded before the pass is repeated.
            for other in [each for each in self.objects if each != key]:
                self._pass(other)

    def _pass(self, key: ObjectKey) -> bool:
        """Reconcile once. Returns whether the names could be decided."""
        each = self.objects[key]
        status = self.operator.next_status(each)
        if status is not None:
            self._note_answers(each)
        if status is not None and status != each.status:
            self.lost.discard(key)
            self._store(replace(each, body=each.body | {"status": status}))
        return status is not None

    def _note_answers(self, each: NamedObject) -> None:
        """Note under which name an object can answer. An adapter that was read is not read again."""
        uid = each.body["metadata"]["uid"]
        if each.answers and not each.is_refused:
            self.has_been_read.add(uid)
        is_adapter = each.key[0] == "LoraAdapter"
        if uid in self.has_been_read and not each.is_refused if is_adapter else each.answers:
            self.could_answer.add((uid, each.model_name))

    def _store(self, each: NamedObject) -> None:
        self.objects[each.key] = each
        self.operator.watch(each.key, each.body)

    def _snapshot(self) -> Snapshot:
        by_kind = {
            kind: [each.body for key, each in self.objects.items() if key[0] == kind]
            for kind in CLAIM_KINDS
        }
        return self.gateway.build(
            by_kind["InferenceService"], [], by_kind["ModelRoute"], by_kind["LoraAdapter"]
        )

    def _still_claims(self, snapshot: Snapshot, last: Holder, name: str) -> bool:
        """Whether the object exists, with this model name.

        An object that is being deleted keeps no name. An adapter that is refused, and has lost its status,
        has nothing left that says that it answered.
        """
        each = self.objects.get(last.key)
        if each is None or each.body["metadata"]["uid"] != last.uid or each.is_terminating:
            return False
        claims = {_key(found): found for found in snapshot._claims()}
        found = claims[last.key]
        is_refused = found.precedence.standing is Standing.REFUSED
        return not is_refused and found.served_name == name.rpartition("/")[2]


def _key(found: Claim) -> ObjectKey:
    return found.kind, found.namespace, found.name


def _key_at(snapshot: Snapshot, name: str) -> ObjectKey:
    found = snapshot.resolve(name)
    assert not isinstance(found, Unknown)
    return _key(found)


def _takes_precedence(found: Claim, last: Holder) -> bool:
    """Whether a route or a service that answers takes the name within its namespace, as documented."""
    kind, namespace, _ = last.key
    is_before = CLAIM_KINDS.index(found.kind) < CLAIM_KINDS.index(kind)
    is_answering = found.precedence.standing is Standing.ESTABLISHED
    return found.namespace == namespace and is_before and is_answering


TestNameHolders = NameHolders.TestCase
TestNameHolders.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
