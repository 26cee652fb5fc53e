"""Reference of the order of one tenant in one class: deadlines alone, written plainly."""

from itertools import count

from penstock.core.admission.room import MARGIN, YIELD_SHARE


class DeadlineOrder:
    """Requests of one tenant, by the adapter that they are for."""

    def __init__(self, ttft_s):
        self._ttft_s = ttft_s
        self._able, self._late = {}, {}  # lists of (deadline or 0, serial, request) by adapter
        self._serials = count()

    def add(self, waiting):
        name, entry = waiting.adapter, (waiting.deadline_s, next(self._serials), waiting)
        if not self._able.get(name) and not self._late.get(name):
            # An adapter whose requests have all gone is looked at after the others.
            self._able.pop(name, None)
            self._late.pop(name, None)
        self._able.setdefault(name, []).append(entry)
        self._late.setdefault(name, [])

    def remove(self, request_id):
        for by_adapter in (self._able, self._late):
            for name, entries in by_adapter.items():
                by_adapter[name] = [e for e in entries if e[2].request_id != request_id]

    def requeue_late(self):
        for name, entries in self._late.items():
            for _, _, waiting in entries:
                self._able[name].append((waiting.deadline_s, next(self._serials), waiting))
            self._late[name] = []

    def next(self, engines, now, holders):
        if not engines:
            return None
        latest_s = now + self._ttft_s * MARGIN
        own = {
            name: [e for e in engines if not name or e.pod in holders(name)] for name in self._able
        }
        names = [name for name in self._able if self._able[name] or self._late[name]]
        for name in names:
            self._able[name].sort(key=lambda entry: entry[:2])
            while own[name] and self._able[name]:
                deadline_s, _, head = self._able[name][0]
                if any(
                    e.ttft_s(head.prefill_tokens, now) <= deadline_s - latest_s for e in own[name]
                ):
                    break
                del self._able[name][0]
                self._late[name].append((0.0, next(self._serials), head))
        kept = set()
        for queues, is_late in ((self._able, False), (self._late, True)):
            heads = sorted((queues[n][0][:2], n) for n in names if queues[n])
            for _, name in heads:
                head = queues[name][0][2]
                within_s = self._ttft_s * YIELD_SHARE if is_late else head.deadline_s - latest_s
                fitting = [
                    engine
                    for engine in own[name]
                    if engine.pod not in kept
                    and engine.has_kv_for(head.kv_tokens)
                    and engine.is_sure()
                    and (
                        not engine.prefill_tokens
                        or engine.ttft_s(head.prefill_tokens, now) <= within_s
                    )
                ]
                if fitting:
                    del queues[name][0]
                    return head, fitting
                if not name:
                    return None
                kept.update(engine.pod for engine in own[name])
        return None
