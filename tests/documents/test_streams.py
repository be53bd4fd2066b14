"""Streams that a deployment names, and files that none of them reads."""

import datetime as dt
from collections import Counter
from pathlib import Path

import pytest
import written
from pydantic import ValidationError

from ec1.documents.ledger import DocumentKey, Fingerprints
from ec1.documents.listing import Listing
from ec1.documents.reader import DocumentReader
from ec1.documents.scan import scan_documents
from ec1.documents.settings import DocumentSettings
from ec1.documents.unread import unread_files
from ec1.night.steps.extraction import work_of
from ec1.streams import CONTRACT_STREAMS

NOW = dt.datetime(2026, 6, 1, tzinfo=dt.UTC) + dt.timedelta(days=36500)


def settings(**streams: dict[str, object]) -> DocumentSettings:
    return DocumentSettings.model_validate({"streams": streams})


def fill(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(written.EACH.get(f"a{path.suffix.lower()}", b"{}"))


def scan(root: Path, documents: DocumentSettings) -> Listing:
    return scan_documents(
        root,
        {},
        Fingerprints(dict.fromkeys(documents.all_streams, "f")),
        night="2026-06-01",
        as_of=NOW,
        retract_vanished=False,
        settings=documents,
        cache=root.parent / "cache",
    )


def test_without_streams_of_its_own_a_deployment_reads_the_contracts() -> None:
    assert DocumentSettings().all_streams == CONTRACT_STREAMS


def test_a_folder_of_mixed_files_is_read_whole(tmp_path: Path) -> None:
    root = tmp_path / "share"
    fill(root, *(f"inbox/deep/{name}" for name in written.EACH), "inbox/.hidden.pdf", "other/a.pdf", "inbox/song.mp3")
    found = scan(root, settings(inbox={"folder": "inbox"}))
    assert [each.key for each in found.changed] == sorted(
        DocumentKey("inbox", f"inbox/deep/{name}") for name in written.EACH
    )
    assert not found.rejected
    assert {each.document_id.rpartition("-")[0] for each in found.changed} == {"inbox"}


def test_a_stream_may_be_the_root_itself(tmp_path: Path) -> None:
    root = tmp_path / "share"
    fill(root, "a.PDF", "deep/b.docx")
    found = scan(root, settings(all={"folder": ".", "id_prefix": "doc"}))
    assert [each.key.path for each in found.changed] == ["a.PDF", "deep/b.docx"]
    assert {each.document_id[:4] for each in found.changed} == {"doc-"}


def test_a_stream_may_choose_among_suffixes(tmp_path: Path) -> None:
    root = tmp_path / "share"
    fill(root, "mail/a.eml", "mail/a.pdf")
    documents = settings(mail={"folder": "mail", "suffixes": [".EML"]})
    assert [each.key.path for each in scan(root, documents).changed] == ["mail/a.eml"]
    assert str(unread_files(root, documents.all_streams.values())) == "1 file that no stream reads: 1 .pdf in mail"


def test_a_stream_may_name_further_files_as_text(tmp_path: Path) -> None:
    root = tmp_path / "share"
    fill(root, "all/a.LOG", "all/b.md", "all/c.wiki", "all/~$d.docx", "all/~$e/f.md")
    documents = settings(all={"folder": "all", "as_text": [".log"]})
    assert [each.key.path for each in scan(root, documents).changed] == ["all/a.LOG", "all/b.md"]
    assert str(unread_files(root, documents.all_streams.values())).startswith("1 file that no stream reads: 1 .wiki")
    documents = settings(all={"folder": "all", "as_text": [".log"], "suffixes": [".md"]})
    assert len(scan(root, documents).changed) == 2


def test_files_that_no_stream_reads_are_named(tmp_path: Path) -> None:
    fill(tmp_path, "inbox/a.pdf", "inbox/b.pdf", "notes/c.docx", "a.mp3", "LICENSE", ".git/config", "notes/.d.pdf")
    found = unread_files(tmp_path, CONTRACT_STREAMS.values())
    assert str(found) == (
        "5 files that no stream reads: 2 .pdf, 1 .docx in inbox, notes, 1 without a suffix, 1 .mp3 of kinds that EC1 "
        "cannot read"
    )


def test_where_all_is_read_nothing_is_said(tmp_path: Path) -> None:
    fill(tmp_path, "service-minutebook/assets/a.md")
    assert str(unread_files(tmp_path, CONTRACT_STREAMS.values())) == ""


@pytest.mark.parametrize(("share", "first"), [(3, {"a": 6, "b": 2}), (1, {"a": 0, "b": 8})])
def test_a_stream_gets_its_share_whenever_the_night_ends(share: float, first: dict[str, int], tmp_path: Path) -> None:
    documents = settings(a={"folder": "a", "share": share}, b={"folder": "b"})
    for stream, size in (("a", 100), ("b", 90)):
        (tmp_path / f"share/{stream}").mkdir(parents=True)
        for number in range(12):
            (tmp_path / f"share/{stream}/{number}.txt").write_bytes(bytes([65 + number]) * size)
    listing = scan(tmp_path / "share", documents)
    work = work_of(listing, documents.all_streams, DocumentReader(tmp_path / "share", 1000))
    assert Counter(item.stream for item in work[:8]) == Counter(first)
    assert len(work) == 24


@pytest.mark.parametrize(
    ("streams", "problem"),
    [
        ({"a": {"folder": "/etc"}}, "not a folder below documents.root"),
        ({"a": {"folder": "../x"}}, "not a folder below documents.root"),
        ({"a": {"folder": "x"}, "b": {"folder": "x/y"}}, "the folder of 'b' lies in that of 'a'"),
        ({"a": {"folder": "x"}, "b": {"folder": "./x"}}, "lies in that of"),
        ({"a": {"folder": "."}, "b": {"folder": "y"}}, "the folder of 'b' lies in that of 'a'"),
        ({"a": {"folder": "x"}, "b": {"folder": "y", "id_prefix": "a"}}, "two streams have the id prefix 'a'"),
        ({"a": {"folder": "x", "suffixes": [".md", ".jsonl"]}}, "name .json among the suffixes, too"),
        ({"a": {"folder": "x", "suffixes": [".mp3"]}}, "'.mp3' files cannot be read: choose among .md"),
        ({"a": {"folder": "x", "as_text": [".pdf"]}}, ".pdf files are read by their own rules"),
        ({"a": {"folder": "x", "as_text": ["log"]}}, "'log' is not a suffix, such as .log"),
        ({"../a": {"folder": "x"}}, "name"),
        ({"a": {}}, "either a `folder` or a `source`"),
        ({"a": {"source": {"kind": "git", "repository": "x", "revision": "--exec=x"}}}, "revision"),
        ({"a": {"source": {"kind": "git", "repository": "x", "folder": "../x"}}}, "not a folder in the source"),
        ({"a": {"source": {"kind": "slack", "path": "x"}}, "b": {"folder": "a/x"}}, "the folder of 'b' lies in that"),
    ],
)
def test_streams_that_cannot_be_are_refused(streams: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        DocumentSettings.model_validate({"streams": streams})
