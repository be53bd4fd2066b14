"""The book of decisions of one role: signed records, each of which names the one before it.

A record is `decisions/NNNNNN.json`: its number, the SHA-256 of the file before it, the decision, and a signature over
these and the role (ECDSA P-256 over SHA-256 of canonical JSON). So a record that was changed, moved to another role or
taken out of the middle shows. What was cut off at the end shows by `decisions/head.json`, which says how many there
were, and by what this machine has seen, which lies with its keys: whoever can change that can sign, too.

A book with a fault stops its role, and no other one. A person mends it with one more record, a `repair`, which names
each faulty record by its bytes: what was signed stays, records from before there were signatures count from then on,
and what was changed or is gone is left out.

Belongs here: writing, checking and mending records. Does not: what they mean (`decisions.py`), keys (`signing.py`).
"""

import contextlib
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from ec1.adapters.decisions import ReleaseDecision
from ec1.adapters.signing import SigningKeys
from ec1.errors import PermanentError
from ec1.files import canonical_json, read_json, write_json
from ec1.storage.store import AlreadyExists, NotFound, ObjectStore

_NUMBERED = re.compile(r"([0-9]{6})\.json")
_HEAD = "head.json"


@dataclass(frozen=True)
class Fault:
    """What is wrong with one record. `sha256` is of its bytes, empty if it is gone; `earlier` is what it says, if it is
    from before there were signatures."""

    number: int
    what: str
    sha256: str
    earlier: ReleaseDecision | None = None


@dataclass(frozen=True)
class _Pages:
    """A book as it is in the store: what each record says (None: nothing that counts), and what is wrong."""

    decisions: dict[int, ReleaseDecision]
    faults: list[Fault]
    last: int
    last_digest: str | None


class DecisionBook:
    """The decisions about `role` (`tenant/role`), in `folder` of a store. `seen`: this machine's note of their
    number."""

    def __init__(self, store: ObjectStore, keys: SigningKeys, role: str, folder: str) -> None:
        self._store, self._keys, self._role, self._folder = store, keys, role, folder
        self._seen = keys.folder / "decisions" / f"{role}.json"

    def read(self) -> list[ReleaseDecision]:
        """All decisions, oldest first. Raises PermanentError if the book has a fault that nobody vouched for."""
        pages = self._pages()
        if pages.faults:
            first = pages.faults[0]
            raise PermanentError(
                f"{self._folder}/{first.number:06}.json {first.what}; {self._role} is stopped: look at it with "
                f"`ec1 adapters repair {self._role}`"
            )
        self._note(pages)
        return [pages.decisions[number] for number in sorted(pages.decisions)]

    def faults(self) -> list[Fault]:
        """What is wrong with the book, by number; empty if nothing is."""
        return self._pages().faults

    def add(self, decision: ReleaseDecision) -> None:
        """Append a decision, signed. Raises PermanentError if the book has a fault."""
        self.read()
        self._append(decision)

    def repair(self, decision: ReleaseDecision, faults: list[Fault]) -> None:
        """Append a `repair` that vouches for exactly these faults, as a person has seen them."""
        vouched = {str(fault.number): fault.sha256 for fault in faults}
        self._append(decision.model_copy(update={"vouched": vouched}))
        self.read()

    def _append(self, decision: ReleaseDecision) -> None:
        while True:
            pages = self._pages()
            number = pages.last + 1
            body = self._body(number, pages.last_digest, json.loads(decision.model_dump_json()))
            signed = {**body, "signature": self._keys.seal(canonical_json(body))}
            data = json.dumps(signed, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n"
            try:
                self._store.put_bytes(f"{self._folder}/{number:06}.json", data, if_absent=True)
            except AlreadyExists:
                # Somebody else decided at the same time: this one comes after it.
                continue
            head: dict[str, Any] = {"role": self._role, "count": number, "digest": hashlib.sha256(data).hexdigest()}
            head["signature"] = self._keys.seal(canonical_json(head))
            # A crash before this leaves a head that says too little, which is not a fault.
            self._store.put_bytes(f"{self._folder}/{_HEAD}", canonical_json(head) + b"\n")
            return

    def _body(self, number: int, previous: str | None, decision: Any) -> dict[str, Any]:
        return {"role": self._role, "number": number, "previous": previous, "decision": decision}

    def _pages(self) -> _Pages:
        names = (item.key.removeprefix(f"{self._folder}/") for item in self._store.list(f"{self._folder}/"))
        listed = {int(match[1]) for name in names if (match := _NUMBERED.fullmatch(name))}
        head = self._head()
        marks = [mark for mark in (head, self._noted()) if mark is not None]
        # One that was added after the list was made is not gone: what a mark counts is asked for by its name.
        counted = range(1, max([0, *(count for count, _ in marks)]) + 1)
        found: dict[int, bytes] = {}
        for number in sorted(listed.union(counted)):
            with contextlib.suppress(NotFound):
                found[number] = self._store.get_bytes(f"{self._folder}/{number:06}.json")
        last = max([0, *found, *(count for count, _ in marks)])
        digests = {number: hashlib.sha256(data).hexdigest() for number, data in found.items()}
        expected = dict(marks)
        decisions: dict[int, ReleaseDecision] = {}
        faults: dict[int, Fault] = {}
        for number in range(1, last + 1):
            checked = self._checked(number, found.get(number), digests, number - 1 in faults)
            if isinstance(checked, ReleaseDecision) and expected.get(number, digests[number]) != digests[number]:
                checked = Fault(number, "is another record than the one that was there", digests[number])
            if isinstance(checked, Fault):
                faults[number] = checked
            else:
                decisions[number] = checked
        if head is None and len(decisions) > 1 and not faults:
            # The first head is written after the first record: one record alone may be without.
            faults[0] = Fault(0, "is not the whole book: head.json, which says how many records there are, is gone", "")
        # A repair counts only for records before it, and only if it is without a fault itself.
        for number, decision in sorted(decisions.items()):
            for name, digest in decision.vouched.items() if decision.action == "repair" else ():
                fault = faults.get(int(name)) if name.isdecimal() else None
                if fault is not None and fault.number < number and fault.sha256 == digest:
                    del faults[fault.number]
                    if fault.earlier is not None:
                        decisions[fault.number] = fault.earlier
        return _Pages(decisions, sorted(faults.values(), key=lambda fault: fault.number), last, digests.get(last))

    def _checked(
        self, number: int, data: bytes | None, digests: dict[int, str], after_fault: bool
    ) -> ReleaseDecision | Fault:
        if data is None:
            return Fault(number, "is gone", "")
        digest = digests[number]
        try:
            record = json.loads(data)
            if isinstance(record, dict) and "action" in record:
                earlier = ReleaseDecision.model_validate(record)
                return Fault(number, "is not signed: it is from before decisions were", digest, earlier)
            body = self._body(number, record["previous"], record["decision"])
            decision = ReleaseDecision.model_validate(record["decision"])
            problem = self._keys.seal_problem(canonical_json(body), record["signature"])
        except (ValueError, KeyError, TypeError, RecursionError, ValidationError):
            return Fault(number, "is damaged", digest)
        if problem is None and not after_fault and record["previous"] != digests.get(number - 1):
            problem = "does not follow from the record before it"
        return decision if problem is None else Fault(number, problem, digest)

    def _head(self) -> tuple[int, str] | None:
        """How many decisions there were at least, and the digest of that one, as the store says."""
        try:
            head = json.loads(self._store.get_bytes(f"{self._folder}/{_HEAD}"))
            body = {"role": self._role, "count": int(head["count"]), "digest": str(head["digest"])}
            problem = self._keys.seal_problem(canonical_json(body), head["signature"])
        except (NotFound, ValueError, KeyError, TypeError, RecursionError):
            return None
        return None if problem is not None else (int(head["count"]), str(head["digest"]))

    def _noted(self) -> tuple[int, str] | None:
        """The same, as this machine has seen it."""
        if not self._seen.is_file():
            return None
        note = read_json(self._seen)
        try:
            return int(note["count"]), str(note["digest"])
        except (KeyError, TypeError, ValueError):
            raise PermanentError(f"{self._seen} is damaged: restore it from a backup") from None

    def _note(self, pages: _Pages) -> None:
        if pages.last and pages.last_digest and (self._noted() or (0, ""))[0] < pages.last:
            # A machine that only serves may have its keys mounted read-only: it remembers nothing.
            with contextlib.suppress(OSError):
                write_json(self._seen, {"count": pages.last, "digest": pages.last_digest})
