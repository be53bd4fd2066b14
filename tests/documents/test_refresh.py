"""Which documents a changed extractor reads again, by policy."""

import pytest

from ec1.documents.ledger import DocumentKey, Fingerprints, LedgerEntry, Status
from ec1.documents.refresh import FingerprintPolicy, plan_refresh

OLD, NEW = "o" * 64, "n" * 64
NOW = Fingerprints({"meeting": NEW, "research": NEW})


def ledger(*rows: tuple[str, str, Status, str]) -> dict[DocumentKey, LedgerEntry]:
    """Rows of path, fingerprint, status and night."""
    entries = [
        LedgerEntry(DocumentKey("meeting", path), f"mk-{path}", f"content of {path}", fingerprint, status, night)
        for path, fingerprint, status, night in rows
    ]
    return {entry.key: entry for entry in entries}


STOCK = ledger(
    ("a", OLD, Status.APPLIED, "2026-06-03"),
    ("b", OLD, Status.APPLIED, "2026-06-01"),
    ("c", OLD, Status.QUARANTINED, "2026-06-02"),
    ("d", OLD, Status.REJECTED, "2026-06-04"),
    ("current", NEW, Status.APPLIED, "2026-06-01"),
    ("deferred", OLD, Status.DEFERRED, "2026-06-01"),
    ("deleted", OLD, Status.DELETED, "2026-06-01"),
)


def due(policy: FingerprintPolicy, per_night: int = 2, held: str = "") -> str:
    refresh = plan_refresh(STOCK, NOW, policy, per_night=per_night, has_result=lambda entry: entry.key.path in held)
    assert "".join(sorted(key.path for key in refresh.stale)) == "abcd"
    unsettled = {key.path for key, entry in refresh.ledger.items() if entry.fingerprint != NEW}
    # What is not due looks to the scan as if it were current; what is deferred or deleted is left as it is.
    assert unsettled == {key.path for key in refresh.due} | {"deferred", "deleted"}
    assert refresh.free == len(held)
    return "".join(sorted(key.path for key in refresh.due))


@pytest.mark.parametrize(
    ("policy", "per_night", "held", "expected"),
    [
        ("lazy", 2, "", ""),
        ("lazy", 2, "d", "d"),
        ("budgeted", 2, "", "bc"),
        ("budgeted", 3, "", "abc"),
        ("budgeted", 9, "", "abcd"),
        ("budgeted", 1, "bd", "bcd"),
        ("full", 1, "", "abcd"),
        ("full", 1, "a", "abcd"),
    ],
)
def test_the_policies(policy: FingerprintPolicy, per_night: int, held: str, expected: str) -> None:
    assert due(policy, per_night, held) == expected


def test_nothing_changed_is_nothing_to_do() -> None:
    same = {key: entry for key, entry in STOCK.items() if entry.fingerprint == NEW}
    refresh = plan_refresh(same, NOW, "full", per_night=1, has_result=lambda _: pytest.fail("asked for nothing"))
    assert (refresh.stale, refresh.due, refresh.ledger) == (frozenset(), frozenset(), same)
