"""A new converter has read again what it changes, by the policy, and nothing else; mentions keep their sentences."""

import contextlib
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import written
from debian import program

from ec1.documents import convert
from ec1.documents.convert import CONVERTER_VERSION, Converter
from ec1.documents.ledger import DocumentKey, Fingerprints, LedgerEntry, Status
from ec1.documents.parse import TEXTS_VERSION
from ec1.documents.reader import DocumentReader
from ec1.documents.refresh import FingerprintPolicy, plan_refresh
from ec1.documents.settings import ConversionSettings, DocumentSettings
from ec1.documents.upgrades import changed_contents, note_upgrade
from ec1.errors import DeferredError, RejectedError
from ec1.graph.model import StoredMention
from ec1.graph.quotes import Quotes

ONE, TWO, NOTE = "one.pdf", "two.pdf", "note.md"
PAGES = (
    "Ruth Haldane of Baltic Timber met nobody.",
    "Much later, Ruth Haldane signed.",
)


def unknown(fingerprint: str, content: str) -> int:
    return 0


class Documents:
    """Three documents, their ledger, and a reader that keeps what it converted."""

    def __init__(self, root: Path) -> None:
        self.root, self.state = root / "share", root / "conversions.json"
        self.root.mkdir()
        contents = {ONE: written.pdf(*PAGES), TWO: written.pdf("Ann Lee stays."), NOTE: b"Bo Li stays as well."}
        for name, data in contents.items():
            (self.root / name).write_bytes(data)
        self.sha256 = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
        self.kept = root / "cache"
        self.converter = Converter(ConversionSettings(), self.kept)
        self.reader = DocumentReader(self.root, 2**20, self.converter)
        self.ledger = {
            DocumentKey("all", name): LedgerEntry(
                DocumentKey("all", name), name, sha256, "f", Status.APPLIED, "2026-06-01"
            )
            for name, sha256 in self.sha256.items()
        }

    def upgraded(self, monkeypatch: pytest.MonkeyPatch, version: str, text: str) -> None:
        """Another converter, which reads one.pdf otherwise than it is read now."""
        for name in (ONE, TWO):
            self.reader.read(DocumentKey("all", name), self.sha256[name])
        before = convert.CONVERTER_VERSION
        place = self.converter._place(".pdf", self.sha256[ONE])
        assert place is not None
        place.write_bytes(place.read_bytes().replace(b"signed", text.encode()))
        monkeypatch.setattr(convert, "CONVERTER_VERSION", version)
        note_upgrade(self.state, self.ledger, self.reader, "limits", unknown)
        assert not (self.kept / before).exists(), "what the converter before gave is of no use any more"


@pytest.fixture
def documents(tmp_path: Path) -> Iterator[Documents]:
    found = Documents(tmp_path)
    note_upgrade(found.state, found.ledger, found.reader, "limits", unknown)
    assert changed_contents(found.state) == {}, "a first night has nothing to compare with"
    yield found
    found.converter.close()


def test_an_upgrade_marks_what_it_changes(documents: Documents, monkeypatch: pytest.MonkeyPatch) -> None:
    documents.upgraded(monkeypatch, "next", "wrote")
    assert changed_contents(documents.state) == {documents.sha256[ONE]: "next"}
    # The night after, it is still that one.
    note_upgrade(documents.state, documents.ledger, documents.reader, "limits", unknown)
    assert changed_contents(documents.state) == {documents.sha256[ONE]: "next"}
    documents.upgraded(monkeypatch, "after next", "signed")
    assert changed_contents(documents.state) == {documents.sha256[ONE]: "next"}, "as the one before read it"


def test_an_upgrade_waits_for_a_night_that_can_convert(documents: Documents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(DeferredError):
        documents.reader.read(DocumentKey("all", ONE), documents.sha256[ONE])
    place = documents.converter._place(".pdf", documents.sha256[ONE])
    assert place is not None
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b'{"title": "", "parts": [["", "Ruth Haldane signed."]]}\n')
    before, noted = convert.CONVERTER_VERSION, documents.state.read_bytes()
    monkeypatch.setattr(convert, "CONVERTER_VERSION", "next")
    note_upgrade(documents.state, documents.ledger, documents.reader, "limits", unknown)
    assert documents.state.read_bytes() == noted and (documents.kept / before).exists()


@pytest.mark.parametrize(("policy", "due"), [("lazy", []), ("budgeted", [ONE]), ("full", [ONE])])
def test_what_changed_is_read_again_by_the_policy(
    documents: Documents, monkeypatch: pytest.MonkeyPatch, policy: FingerprintPolicy, due: list[str]
) -> None:
    documents.upgraded(monkeypatch, "next", "wrote")
    changed = changed_contents(documents.state)
    fingerprints = Fingerprints({"all": "f"}, {content: {"all": "f, next"} for content in changed})
    refresh = plan_refresh(documents.ledger, fingerprints, policy, per_night=9, has_result=lambda entry: False)
    assert [key.path for key in refresh.stale] == [ONE]
    assert [key.path for key in refresh.due] == due
    # What waits looks to the scan as if nothing had changed.
    wanted = {key: fingerprints.of("all", entry.content_sha256) for key, entry in refresh.ledger.items()}
    assert [key.path for key, entry in refresh.ledger.items() if entry.fingerprint != wanted[key]] == due


def test_what_was_kept_and_is_gone_counts_as_changed(documents: Documents) -> None:
    documents.state.write_text(documents.state.read_text().replace(CONVERTER_VERSION, "before"))
    note_upgrade(documents.state, documents.ledger, documents.reader, "limits", unknown)
    assert set(changed_contents(documents.state)) == {documents.sha256[ONE], documents.sha256[TWO]}


def test_another_limit_lets_in_what_one_refused(documents: Documents) -> None:
    def with_status(name: str, status: Status, reason: str | None) -> None:
        key = DocumentKey("all", name)
        documents.ledger[key] = replace(documents.ledger[key], status=status, reason=reason)

    with_status(ONE, Status.REJECTED, "9 pages are more than documents.conversion.max_pages (5)")
    with_status(TWO, Status.REJECTED, "not converted: it is encrypted")
    with_status(NOTE, Status.QUARANTINED, "6 chunks, and documents.max_chunks is 2")
    note_upgrade(documents.state, documents.ledger, documents.reader, "more", unknown)
    changed = {documents.sha256[name]: f"{CONVERTER_VERSION}, limits more" for name in (ONE, NOTE)}
    assert changed_contents(documents.state) == changed
    # What was let in stays what it is; what is refused still is read again with each other limit.
    with_status(NOTE, Status.APPLIED, None)
    note_upgrade(documents.state, documents.ledger, documents.reader, "more still", unknown)
    changed[documents.sha256[ONE]] = f"{CONVERTER_VERSION}, limits more still"
    assert changed_contents(documents.state) == changed
    settings = [
        DocumentSettings(),
        DocumentSettings(conversion=ConversionSettings(max_pages=5)),
        DocumentSettings(max_chunks=2),
        DocumentSettings(conversion=ConversionSettings(processes=1, ocr=("eng",))),
    ]
    one, *others, same = [each.limits for each in settings]
    assert len({one, *others}) == 3 and same == one, "reading pictures is a converter of its own"


def test_recognition_that_is_switched_on_changes_pictures_only(documents: Documents) -> None:
    program("tesseract")
    scan = written.scanned("Ruth Haldane met Mark Ellison.")
    (documents.root / "scan.pdf").write_bytes(scan)
    sha256 = hashlib.sha256(scan).hexdigest()
    key = DocumentKey("all", "scan.pdf")
    documents.ledger[key] = LedgerEntry(key, "scan", sha256, "f", Status.REJECTED, "2026-06-01")
    for each, entry in documents.ledger.items():
        with contextlib.suppress(RejectedError):
            documents.reader.read(each, entry.content_sha256)
    converter = Converter(ConversionSettings(ocr=("eng",)), documents.kept)
    note_upgrade(documents.state, documents.ledger, DocumentReader(documents.root, 10**6, converter), "limits", unknown)
    converter.close()
    assert changed_contents(documents.state) == {sha256: f"{CONVERTER_VERSION}+pages+eng"}


def test_a_mention_finds_its_sentence_in_another_text(documents: Documents) -> None:
    def quoted(name: str, start: int) -> tuple[str, str, str | None]:
        mention = StoredMention(
            stream="all", path=ONE, document_id="one", content_sha256=documents.sha256[ONE], chunk=0, start=start,
            end=start + len(name), confidence=0.9, fingerprint="f", model="m", night="2026-06-01", name=name,
        )  # fmt: skip
        quote = Quotes(documents.reader).of(mention)
        return quote.name, quote.place, quote.problem

    text = documents.reader.read(DocumentKey("all", ONE), documents.sha256[ONE]).text
    first, second = text.index("Ruth Haldane"), text.rindex("Ruth Haldane")
    assert quoted("Ruth Haldane", first) == ("Ruth Haldane", "page 1", None)
    # Offsets of another text: the nearest place with the name, and none where it does not stand any more.
    assert quoted("Ruth Haldane", second + 3) == ("Ruth Haldane", "page 2", None)
    assert quoted("Ruth  HALDANE", second) == ("Ruth Haldane", "page 2", None)
    name, _, problem = quoted("Ines Duarte", first)
    assert not name and problem is not None and "has to be read again" in problem


def test_texts_that_are_read_otherwise_are_read_again(documents: Documents, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records, pages and notes were read on as an earlier version had read them, and quoted at other places."""
    names = {"same.md": b"Ann Lee stays.", "longer.md": b"---\nmoderator: Bo Li\n---\nText.", "gone.md": b"x"}
    names |= {"refused.json": b'{"Account Name": "Glass Ltd"}', "broken.json": b"{", "unknown.md": b"Who knows?"}
    before = {"same.md": 14, "longer.md": 5, "gone.md": 1, "unknown.md": 0}
    lengths = {}
    for name, data in names.items():
        (documents.root / name).write_bytes(data)
        documents.sha256[name] = sha256 = hashlib.sha256(data).hexdigest()
        status = Status.APPLIED if name in before else Status.REJECTED
        key = DocumentKey("all", name)
        documents.ledger[key] = LedgerEntry(key, name, sha256, "ledger-only f", status, "2026-06-01")
        lengths["f", sha256] = before.get(name, 0)
    (documents.root / "gone.md").unlink()

    def characters(fingerprint: str, content: str) -> int:
        return lengths.get((fingerprint, content), 0)

    state = documents.state.read_text()
    documents.state.write_text(state.replace(f'"texts": {TEXTS_VERSION}', '"texts": 1'))
    for _ in range(2):
        note_upgrade(documents.state, documents.ledger, documents.reader, "limits", characters)
        wanted = {documents.sha256[name]: f"texts {TEXTS_VERSION}" for name in ("longer.md", "refused.json")}
        assert changed_contents(documents.state) == wanted
