"""Fifty files that mean harm or are broken: each is read or has a reason, none takes the night, and memory is bounded.

They are read as a night reads them: listed, loaded, converted. `python tests/documents/test_hostile.py FOLDER` prints
the outcome of each file below `FOLDER/inbox`, with the peak memory so far.
"""

import datetime as dt
import io
import json
import os
import resource
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import written

from ec1.documents.convert import Converter
from ec1.documents.ledger import Fingerprints
from ec1.documents.reader import DocumentReader
from ec1.documents.scan import scan_documents
from ec1.documents.settings import ConversionSettings, DocumentSettings
from ec1.errors import DeferredError, RejectedError

LIMITS = ConversionSettings(max_seconds=30, max_memory_mb=1024, max_pages=500)
READ = "read"
OFFICE = "<Types xmlns='http://schemas.openxmlformats.org/package/2006/content-types'/>"


def _docx(body: bytes, **more: bytes) -> bytes:
    """A Word file of this XML, with the rest of a real one around it."""
    files = _unzipped(written.word("x"))
    return written.zipped({**files, "word/document.xml": body, **more})


def _unzipped(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _nested_zip(depth: int) -> bytes:
    data = b"0" * 1_000_000
    for _ in range(depth):
        data = written.zipped({f"{number}.zip": data for number in range(8)})
    return data


def _pdf(*objects: bytes) -> bytes:
    return b"%PDF-1.7\n" + b"\n".join(objects) + b"\ntrailer<</Root 1 0 R>>\n%%EOF"


def _endless_pages() -> bytes:
    """A page tree that contains itself."""
    return _pdf(b"1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj", b"2 0 obj<</Type/Pages/Kids[2 0 R]/Count 1>>endobj")


def _pages(count: int) -> bytes:
    """So many pages of one content."""
    kids = b" ".join([b"3 0 R"] * count)
    return _pdf(
        b"1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj",
        b"2 0 obj<</Type/Pages/Count %d/Kids[" % count + kids + b"]>>endobj",
        b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>endobj",
        b"4 0 obj<</Length 30>>stream\nBT /F 9 Tf 9 9 Td (Ann) Tj ET  \nendstream endobj",
        b"5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj",
    )


def _flate_bomb() -> bytes:
    import zlib

    stream = zlib.compress(b" " * 200_000_000, 9)
    return _pdf(
        b"1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj",
        b"2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj",
        b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Contents 4 0 R>>endobj",
        b"4 0 obj<</Length %d/Filter/FlateDecode>>stream\n" % len(stream) + stream + b"\nendstream endobj",
    )


def _mbox() -> bytes:
    mail = written.mail("One", "Ann Lee wrote.").replace(b"boundary=", b"boundry=")
    return b"From a@b Mon Jan  1 00:00:00 2026\n" + mail


ENTITIES = (
    b"<!DOCTYPE x [<!ENTITY a 'aaaaaaaaaa'>"
    + b"".join(b"<!ENTITY %c '%s'>" % (98 + n, b"&%c;" % (97 + n) * 10) for n in range(9))
    + b"]><x>&j;</x>"
)
EXTERNAL = b"<!DOCTYPE x [<!ENTITY s SYSTEM 'file:///etc/passwd'>]><x>&s;</x>"
DEEP = b"<w:p>" * 200_000
DOCX, XLSX, PPTX, ODT, EPUB = (written.EACH[f"a.{suffix}"] for suffix in ("docx", "xlsx", "pptx", "odt", "epub"))
PDF, EML, RTF = written.EACH["a.pdf"], written.EACH["a.eml"], written.EACH["a.rtf"]
OOXML = b"http://schemas.openxmlformats.org/wordprocessingml/2006/main"
WORD = b"<w:document xmlns:w='" + OOXML + b"'><w:body>%s</w:body></w:document>"

EITHER = ""
"""Whatever the library makes of it: read, or refused with a reason."""
NOT = "not converted"
MACRO = {"word/vbaProject.bin": b"\xd0\xcf\x11\xe0" + b"A" * 5000}
SCRIPT = b"/Type /Catalog /OpenAction<</S/JavaScript/JS(app.alert\\(1\\))>>"
CONTAINER = "META-INF/container.xml"
AWAY = {CONTAINER: _unzipped(EPUB)[CONTAINER].replace(b"a.opf", b"../../etc/passwd")}
PARTS = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (n, n) for n in range(3000))
ALIASES = [b"%c: &%c [%s]\n" % (98 + n, 98 + n, b",".join([b"*%c" % (97 + n)] * 9)) for n in range(8)]


def files() -> dict[str, tuple[bytes, str]]:
    """Each file by name, with what its outcome says."""
    zeros = {"word/document.xml": b"0" * 300_000_000, "[Content_Types].xml": OFFICE.encode()}
    strings = {"xl/sharedStrings.xml": b"<sst>" + b"a" * 300_000_000}
    return {
        "encrypted.pdf": (written.pdf("secret", password="x"), "password"),
        "many-pages.pdf": (_pages(10_000), "10,000 pages are more than"),
        "scanned.pdf": (written.pdf("", "", ""), "no text in 3 pages"),
        "truncated.pdf": (PDF[: len(PDF) // 2], NOT),
        "endless-pages.pdf": (_endless_pages(), NOT),
        "inflates.pdf": (_flate_bomb(), "no text"),
        "no-pages.pdf": (_pdf(b"1 0 obj<</Type/Catalog>>endobj"), NOT),
        "script.pdf": (PDF.replace(b"/Type /Catalog", SCRIPT), READ),
        "header-only.pdf": (b"%PDF-1.7\n", NOT),
        "random.pdf": (b"%PDF-1.7\n" + bytes(range(256)) * 400, NOT),
        "html.pdf": (b"<html><body>Ann Lee</body></html>", NOT),
        "picture.pdf": (b"\x89PNG\r\n\x1a\n" + b"\0" * 999, NOT),
        "empty.pdf": (b"", "empty"),
        "new\nline.pdf": (PDF, READ),
        "bomb.docx": (written.zipped(zeros), "Security limit"),
        "macro.docx": (_docx(_unzipped(DOCX)["word/document.xml"], **MACRO), READ),
        "entities.docx": (_docx(ENTITIES), "no text"),
        "external.docx": (_docx(EXTERNAL), "no text"),
        "deep.docx": (_docx(WORD % DEEP), NOT),
        "climbs.docx": (written.zipped({**_unzipped(DOCX), "../../../../tmp/ec1-was-here": b"x"}), EITHER),
        "truncated.docx": (DOCX[:-200], NOT),
        "no-body.docx": (written.zipped({"[Content_Types].xml": OFFICE.encode()}), NOT),
        "is-a-pdf.docx": (PDF, READ),
        "zip-of-zips.docx": (_nested_zip(3), NOT),
        "is-text.docx": (b"Ann Lee of Glass Ltd", NOT),
        "wide.xlsx": (written.workbook(One=[tuple(range(2000))] * 20), EITHER),
        "empty.xlsx": (written.workbook(Empty=[]), "no text"),
        "formula.xlsx": (written.workbook(One=[("=cmd|'/C calc'!A0", "Ann Lee")]), READ),
        "truncated.xlsx": (XLSX[: len(XLSX) // 2], NOT),
        "bomb.xlsx": (written.zipped({**_unzipped(XLSX), **strings}), EITHER),
        "truncated.pptx": (PPTX[: len(PPTX) // 2], NOT),
        "no-slides.pptx": (written.zipped({"[Content_Types].xml": OFFICE.encode()}), EITHER),
        "entities.odt": (written.zipped({**_unzipped(ODT), "content.xml": ENTITIES}), NOT),
        "truncated.odt": (ODT[:-100], NOT),
        "bomb.odt": (written.zipped({**_unzipped(ODT), "content.xml": b"<a>" * 50_000_000}), EITHER),
        "nested.rtf": (rb"{\rtf1 " + b"{" * 500_000 + b"Ann" + b"}" * 500_000 + b"}", EITHER),
        "unclosed.rtf": (RTF[:-1], READ),
        "binary.rtf": (rb"{\rtf1\bin999999999 " + b"\0" * 1000, EITHER),
        "no-spine.epub": (written.zipped({"mimetype": b"application/epub+zip"}), NOT),
        "climbs.epub": (written.zipped({**_unzipped(EPUB), **AWAY}), NOT),
        "not-a-mail.msg": (b"no mail at all", NOT),
        "header.msg": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\xff" * 4096, NOT),
        "mbox.eml": (_mbox(), READ),
        "broken-mime.eml": (EML.replace(b"base64", b"base65").replace(b"--==", b"--=?"), READ),
        "header-bomb.eml": (b"To: " + b"a@b, " * 500_000 + b"\n\nAnn Lee wrote.", EITHER),
        "nested.eml": (PARTS, EITHER),
        "page.html": (b"<div>" * 100_000 + b"Ann Lee", EITHER),
        "nul.txt": (b"Ann\0Lee" * 2000, "binary"),
        "record.json": (b"[" * 100_000, "nested too deeply"),
        "bomb.yaml": (b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(ALIASES), EITHER),
    }


@dataclass(frozen=True)
class Outcome:
    reason: str
    """`read`, or why not."""
    peak_mib: float
    """The most that any process that converted took so far, resident."""


def outcomes(root: Path) -> Iterator[tuple[str, Outcome]]:
    """What becomes of each file, listed and read as a night does it."""
    with (root / "huge.pdf").open("wb") as huge:
        huge.truncate(2**31)
    os.mkfifo(root / "pipe.pdf")
    settings = DocumentSettings.model_validate({"streams": {"all": {"folder": "."}}})
    listing = scan_documents(
        root,
        {},
        Fingerprints({"all": "f"}),
        night="2026-06-01",
        as_of=dt.datetime.now(dt.UTC) + dt.timedelta(days=1),
        retract_vanished=True,
        settings=settings,
        cache=root.parent / "cache",
    )
    for each in listing.rejected:
        yield each.key.path, Outcome(each.reason, _peak())
    converter = Converter(LIMITS)
    reader = DocumentReader(root, settings.max_bytes, converter)
    for version in listing.changed:
        try:
            reader.read(version.key, version.content_sha256)
            reason = READ
        except (RejectedError, DeferredError) as error:
            reason = str(error)
        if version is listing.changed[-1]:
            converter.close()
        yield version.key.path, Outcome(reason, _peak())


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


@pytest.mark.slow
def test_each_hostile_file_is_read_or_has_a_reason_and_memory_is_bounded(tmp_path: Path) -> None:
    (inbox := tmp_path / "inbox").mkdir()
    expected = {}
    for name, (data, reason) in files().items():
        (inbox / name).write_bytes(data)
        expected[name] = reason
    # In a process of its own, without those bytes: a process knows only the peak of all its children, and theirs begins
    # with what it has itself.
    script = [sys.executable, "-P", __file__, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(script, stdout=subprocess.PIPE, env=environment, check=True)
    found = {name: Outcome(reason, peak) for name, reason, peak in map(json.loads, done.stdout.splitlines())}
    peak = max(outcome.peak_mib for outcome in found.values())
    wrong = {}
    for name, reason in expected.items():
        outcome = found.pop(name, None)
        if outcome is None or reason not in outcome.reason or "\n" in outcome.reason or len(outcome.reason) > 400:
            wrong[name] = outcome
    assert wrong == {}
    assert "max_bytes" in found.pop("huge.pdf").reason
    # A pipe is no file: it is not opened, which would wait for ever.
    assert set(found) <= {"pipe.pdf"}
    assert peak <= LIMITS.max_memory_mb + 64  # What the converter holds outside its heap is counted, too.
    assert not Path("/tmp/ec1-was-here").exists()


if __name__ == "__main__":
    for name, outcome in outcomes(Path(sys.argv[1]) / "inbox"):
        sys.stdout.write(json.dumps([name, outcome.reason, outcome.peak_mib]) + "\n")
        sys.stdout.flush()
