"""What the Dagster UI shows of a night's listing: also what was not read, and why."""

import datetime as dt

from ec1.documents.ledger import DocumentKey
from ec1.documents.listing import Listing, Postponed, Rejected
from ec1.night.records import GraphRecord
from ec1_assets import metadata


def test_what_was_not_read_is_shown_with_its_reason() -> None:
    listing = Listing(
        "2026-06-01",
        dt.datetime(2026, 6, 1, tzinfo=dt.UTC),
        changed=(),
        vanished=(),
        rejected=(Rejected(DocumentKey("all", "a.md"), "0" * 64, "empty"),),
        unchanged={"all": 3},
        postponed=(Postponed(DocumentKey("all", "b.zip"), "unreadable now: Input/output error"),),
        kept_out=2,
    )
    shown = metadata.of_listing(listing, "9 files of kinds that no stream reads", GraphRecord())
    assert shown["unreadable_now"] == ["b.zip: unreadable now: Input/output error"]
    assert shown["removed_on_request"] == 2 and shown["rejected"] == 1
    assert shown["not_read_by_any_stream"].startswith("9 files")
