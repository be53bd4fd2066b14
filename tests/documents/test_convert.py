"""Documents of other programs: what is read of each kind, what is refused, and that a hostile one takes nothing."""

import hashlib
import html
import io
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import fpdf
import pytest
import written
from debian import program
from outlook import compound, mail_with
from pydantic import ValidationError

from ec1.documents.convert import Converter, NoConverterError, _line
from ec1.documents.ledger import DocumentKey
from ec1.documents.limits import PAGE_DONE
from ec1.documents.media_types import MEDIA_TYPES
from ec1.documents.parse import Document, parse_document
from ec1.documents.reader import DocumentReader
from ec1.documents.settings import ConversionSettings, DocumentSettings
from ec1.errors import DeferredError, RejectedError
from ec1.streams import CONVERTED


@pytest.fixture(scope="module")
def converter() -> Iterator[Converter]:
    found = Converter(ConversionSettings(max_seconds=20, max_pages=50))
    yield found
    found.close()


def parse(name: str, data: bytes, converter: Converter) -> Document:
    return parse_document(DocumentKey("inbox", name), data, converter)


def test_each_kind_has_a_media_type() -> None:
    assert set(MEDIA_TYPES) == set(CONVERTED)


@pytest.mark.parametrize("name", written.EACH)
def test_the_text_of_each_kind_is_read(name: str, converter: Converter) -> None:
    assert written.TEXT in parse(name, written.EACH[name], converter).text


def test_a_suffix_counts_in_either_case(converter: Converter) -> None:
    assert written.TEXT in parse("A.PDF", written.EACH["a.pdf"], converter).text


def test_a_name_stands_on_a_page(converter: Converter) -> None:
    document = parse("a.pdf", written.pdf("First page.", f"Second. {written.TEXT}", "Third."), converter)
    assert document.place_at(document.text.index("Ruth")) == "page 2"
    assert document.place_at(0) == "page 1"
    assert document.place_at(len(document.text) - 1) == "page 3"


def test_a_name_stands_on_a_sheet(converter: Converter) -> None:
    data = written.workbook(People=[("name", "company"), ("Ann Lee", "Glass Ltd")], Places=[("Riga",)])
    document = parse("a.xlsx", data, converter)
    assert document.place_at(document.text.index("Ann Lee")) == "sheet People"
    assert document.place_at(document.text.index("Riga")) == "sheet Places"
    assert "| Ann Lee | Glass Ltd |" in document.text


def test_a_paragraph_of_an_old_word_file_is_one(converter: Converter) -> None:
    assert parse("a.doc", written.EACH["a.doc"], converter).text == f"Minutes\n\n{written.TEXT}"


@pytest.fixture(scope="module")
def recognising() -> Iterator[Converter]:
    program("tesseract")
    found = Converter(ConversionSettings(ocr=("eng",)))
    yield found
    found.close()


@pytest.mark.parametrize(("suffix", "kind"), [(".png", "PNG"), (".JPG", "JPEG"), (".bmp", "BMP"), (".webp", "WEBP")])
def test_the_text_in_a_picture_is_read_where_it_is_asked_for(suffix: str, kind: str, recognising: Converter) -> None:
    data = written.picture("Maria Alvarez of Baltic Timber\nmet Tom Reyes in Riga.", kind)
    assert parse(f"a{suffix}", data, recognising).text == "Maria Alvarez of Baltic Timber met Tom Reyes in Riga."


def test_a_scanned_name_stands_on_its_page(recognising: Converter, converter: Converter) -> None:
    data = written.scanned("The first page.", "Maria Alvarez of Baltic Timber.")
    document = parse("a.pdf", data, recognising)
    assert document.place_at(document.text.index("Maria")) == "page 2"
    with pytest.raises(RejectedError, match=r"no text in 2 pages: scanned, perhaps; documents\.conversion\.ocr reads"):
        parse("a.pdf", data, converter)
    with pytest.raises(RejectedError, match="no text in 1 pages: nor in pictures"):
        parse("a.pdf", written.scanned(""), recognising)
    # A PDF with text is read as ever.
    assert parse("a.pdf", written.EACH["a.pdf"], recognising) == parse("a.pdf", written.EACH["a.pdf"], converter)


def test_a_scanned_page_among_pages_of_text_is_read(recognising: Converter) -> None:
    """An annex, as scanners make it: a picture, perhaps with the program's name as text."""
    data = written.annexed(written.TEXT, "Maria Alvarez signed in Riga.", stamp="Scanned with a telephone")
    document = parse("a.pdf", data, recognising)
    assert written.TEXT in document.text and "Scanned with a telephone" in document.text
    assert document.place_at(document.text.index("Maria Alvarez signed in Riga.")) == "page 2"


def test_pages_that_are_read_as_pictures_have_time_of_their_own() -> None:
    reading, writing = os.pipe()
    os.write(writing, PAGE_DONE * 100)
    answer = threading.Timer(0.5, os.write, (writing, b'{"parts": []}\n'))
    answer.start()
    now = time.monotonic()
    assert _line(reading, now + 0.1, a_page=10, latest=now + 999) == b'{"parts": []}\n'
    os.write(writing, PAGE_DONE * 100)
    with pytest.raises(TimeoutError):
        _line(reading, now + 0.1, a_page=10, latest=now + 1)
    answer.join()
    os.close(reading)
    os.close(writing)


def test_a_language_that_is_not_here_is_named(recognising: Converter) -> None:
    other = Converter(ConversionSettings(ocr=("eng", "xyz")))
    with pytest.raises(RejectedError, match="Language 'xyz' not found"):
        parse("a.png", written.picture("Maria Alvarez"), other)
    other.close()


def test_a_stream_takes_pictures_only_where_they_are_read() -> None:
    streams = {"scans": {"folder": ".", "suffixes": [".png"]}}
    with pytest.raises(ValidationError, match=r"takes \.png: documents\.conversion\.ocr names no language"):
        DocumentSettings.model_validate({"streams": streams})
    DocumentSettings.model_validate({"streams": streams, "conversion": {"ocr": ["eng"]}})
    with pytest.raises(ValidationError):
        ConversionSettings(ocr=("../eng",))


def test_the_cells_of_a_table_stay_apart(converter: Converter) -> None:
    data = written.word("Minutes", rows=(("Name", "Company"), ("Ann Lee", "Glass Ltd")))
    assert "| Ann Lee | Glass Ltd |" in parse("a.docx", data, converter).text


def test_a_paragraph_that_a_page_broke_into_lines_is_one_line(converter: Converter) -> None:
    sentence = f"{written.TEXT} " * 4
    text = parse("a.pdf", written.pdf(f"{sentence}\nShort line.\nAnother."), converter).text
    assert sentence.strip() in text
    assert "\nShort line.\nAnother." in text


def test_a_mail_says_from_whom_it_is(converter: Converter) -> None:
    document = parse("a.eml", written.mail("Timber", "Ruth called."), converter)
    assert document.title == "Timber"
    assert "Ann Lee" in document.text
    assert "Ruth called." in document.text


BOMB = written.zipped({"word/document.xml": b"<w:t>" + b"0" * 300_000_000, "[Content_Types].xml": b"<Types/>"})


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.pdf", written.pdf("secret", password="x"), "password"),
        ("a.pdf", written.pdf(written.TEXT)[:500], "not converted"),
        ("a.pdf", b"\x89PNG\r\n\x1a\n" + b"\0" * 99, "not converted"),
        ("a.pdf", written.pdf(*["x"] * 51), "51 pages are more than documents.conversion.max_pages"),
        ("a.pdf", written.pdf("", ""), "no text in 2 pages: scanned"),
        ("a.docx", b"PK\x03\x04 and no more", "not converted"),
        ("a.docx", written.zipped({"a.txt": b"no document"}), "not converted: .*word/document.xml"),
        ("a.docx", BOMB, "Security limit exceeded"),
        ("a.xlsx", written.workbook(Empty=[]), "no text"),
        ("a.msg", b"no mail at all", "not converted"),
        ("a.epub", written.zipped({"mimetype": b"application/epub+zip"}), "not converted: File not found"),
    ],
    ids=lambda value: value if isinstance(value, str) and value else None,
)
def test_what_cannot_be_converted_is_refused_with_a_reason(
    name: str, data: bytes, reason: str, converter: Converter
) -> None:
    with pytest.raises(RejectedError, match=reason) as error:
        parse(name, data, converter)
    assert len(str(error.value)) < 300
    assert "\n" not in str(error.value)
    # The next one is read as if nothing had been.
    assert written.TEXT in parse("a.docx", written.EACH["a.docx"], converter).text


SIGNS = """Smith & Sons <of> "Riga", O'Neil *and* Müller #1 ~ back\\slash, `so`!"""


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.docx", written.word("Before.", SIGNS)),
        ("a.docx", written.word("A table:", rows=(("name", "note"), ("x", SIGNS)))),
        ("a.pptx", written.slides("Plan", SIGNS)),
        ("a.xlsx", written.workbook(People=[("note",), (SIGNS,)])),
        ("a.odt", written.open_document(f"<text:p>{html.escape(SIGNS)}</text:p>")),
        ("a.epub", written.book(html.escape(SIGNS))),
        ("a.eml", written.as_kind(".eml", SIGNS)),
        ("a.html", written.as_kind(".html", SIGNS)),
        ("a.pdf", written.pdf(SIGNS)),
    ],
)
def test_no_sign_is_lost_or_escaped(name: str, data: bytes, converter: Converter) -> None:
    assert SIGNS in " ".join(parse(name, data, converter).text.split())


def test_a_reference_by_number_is_its_character(converter: Converter) -> None:
    files = {}
    with zipfile.ZipFile(io.BytesIO(written.word("Smith & Sons, Muller"))) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    body = files["word/document.xml"].replace(b"&amp;", b"&#38;").replace(b"Muller", b"M&#xFC;ller&#0;")
    found = parse("a.docx", written.zipped({**files, "word/document.xml": body}), converter)
    assert "Smith & Sons, Müller" in found.text


def test_a_document_that_takes_too_long_waits_for_another_night(tmp_path: Path) -> None:
    slow = Converter(ConversionSettings(max_seconds=0.000001), tmp_path)
    with pytest.raises(DeferredError, match="not converted within 1e-06 s"):
        slow.convert(written.EACH["a.pdf"], ".pdf", "1" * 64)
    slow.close()
    # Not kept: on another machine, or another day, it may do.
    assert not list(tmp_path.rglob("*.json"))


def test_a_document_whose_converter_is_killed_waits_for_another_night() -> None:
    """As a machine without memory kills it: that is not the document's."""
    converter = Converter(ConversionSettings(processes=1))
    converter.start()
    process = converter._workers[0].process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    threading.Timer(0.3, process.kill).start()
    with pytest.raises(DeferredError, match="the converter was killed"):
        converter.convert(written.EACH["a.pdf"], ".pdf", "9" * 64)
    assert converter.convert(written.EACH["a.pdf"], ".pdf", "9" * 64).parts
    converter.close()


def test_a_document_may_not_take_all_memory() -> None:
    converter = Converter(ConversionSettings(max_memory_mb=512))
    sheet = b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
    rows = b"".join(b'<row r="%d"><c t="inlineStr"><is><t>abcdefgh</t></is></c></row>' % n for n in range(1, 300_000))
    stream = io.BytesIO(written.workbook(One=[("x",)]))
    files = {}
    with zipfile.ZipFile(stream) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    files["xl/worksheets/sheet1.xml"] = sheet + rows * 20 + b"</sheetData></worksheet>"
    with pytest.raises(RejectedError, match=r"may use 512 MB|uncompressed size"):
        converter.convert(written.zipped(files), ".xlsx", "2" * 64)
    assert converter.convert(written.EACH["a.pdf"], ".pdf", "3" * 64).parts
    converter.close()


def test_nothing_is_converted_twice(tmp_path: Path) -> None:
    first = Converter(ConversionSettings(), tmp_path)
    found = first.convert(written.EACH["a.pdf"], ".pdf", "4" * 64)
    first.close()
    # What is kept is by content, so the bytes are not looked at.
    second = Converter(ConversionSettings(), tmp_path)
    assert second.convert(b"", ".pdf", "4" * 64) == found
    assert all(worker.process is None for worker in second._workers)


def test_a_pdf_is_read_where_none_was_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library for PDFs is unpacked when it is first needed, in a process that may write no file; and never loaded
    from a folder that others can write to."""
    (planted := tmp_path / "kreuzberg-pdfium").mkdir()
    (planted / "libpdfium.so").write_bytes(b"not the library")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    converter = Converter(ConversionSettings())
    assert written.TEXT in converter.convert(written.EACH["a.pdf"], ".pdf", "6" * 64).parts[0][1]
    assert [path.name for path in tmp_path.iterdir()] == [planted.name], "nothing is left behind"
    converter.close()


def test_a_pdf_is_read_where_no_library_may_be_loaded_from_the_temporary_folder(tmp_path: Path) -> None:
    """As on hardened machines."""
    (tmp_path / "a.pdf").write_bytes(written.EACH["a.pdf"])
    (tmp_path / "tmp").mkdir()
    reading = (
        "import sys; from ec1.documents.convert import Converter, ConversionSettings as Settings; "
        "print(Converter(Settings()).convert(open(sys.argv[1], 'rb').read(), '.pdf', '8' * 64).parts)"
    )
    steps = 'mount -t tmpfs -o noexec tmpfs "$TMPDIR" || exit 77; exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", steps, "sh", sys.executable, "-c", reading, str(tmp_path / "a.pdf")],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
    )
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("nothing may be mounted here")
    assert written.TEXT in done.stdout, done.stderr


def test_where_nothing_can_be_converted_no_document_is_blamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starts, broken = tmp_path / "starts", tmp_path / "python"
    broken.write_text(f"#!/bin/sh\necho x >> '{starts}'\necho 'no library can be loaded'\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    converter = Converter(ConversionSettings(processes=1), tmp_path / "kept")
    (tmp_path / "a.pdf").write_bytes(written.EACH["a.pdf"])
    sha256 = hashlib.sha256(written.EACH["a.pdf"]).hexdigest()
    reader = DocumentReader(tmp_path, 10**6, converter)
    for _ in range(3):
        with pytest.raises(DeferredError, match="converts documents does not start: no library can be loaded"):
            reader.read(DocumentKey("", "a.pdf"), sha256)
    assert starts.read_text() == "x\n", "it is tried once, not for each of thousands of files"
    broken.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(NoConverterError, match="ended with status 3"):
        Converter(ConversionSettings()).start()
    broken.unlink()
    with pytest.raises(NoConverterError, match="No such file"):
        Converter(ConversionSettings()).start()


def test_many_documents_share_one_process(converter: Converter) -> None:
    converter.convert(written.EACH["a.docx"], ".docx", "5" * 64)
    (worker, *_) = converter._workers
    process, started = worker.process, time.process_time()
    for number in range(50):
        converter.convert(written.EACH["a.docx"], ".docx", f"{number:064d}")
    assert worker.process is process
    assert time.process_time() - started < 1


def test_notes_on_the_pages_of_a_pdf_are_read(converter: Converter) -> None:
    document = fpdf.FPDF()
    document.set_font("Helvetica", size=12)
    for page in ("The offer of Northwind.", "", "A third page."):
        document.add_page()
        document.cell(80, 8, page, link="https://example.org/page")
    document.text_annotation(50, 50, "Ask Tom Bell\nfirst.")
    document.free_text_annotation("Signed in Lyon.", x=20, y=80, w=60, h=20)
    document.page = 2
    document.text_annotation(50, 50, "Where is the scan?")
    document.page = 3
    found = parse("a.pdf", bytes(document.output()), converter)
    assert found.text.split("\n\n") == [
        *("The offer of Northwind.", "A third page."),
        *("Where is the scan?", "Ask Tom Bell first.", "Signed in Lyon."),
    ]
    assert found.place_at(found.text.index("Tom Bell")) == "notes on page 3"
    assert found.empty == ("page 2",), "a scanned page with a note is not read"


# Text, a list, a field of several lines under a name of an XFA form, an empty one, a password and a tick.
_FIELDS = """/FT/Tx/T(f1_01)/TU(Name of the applicant:)/V(Ines Duarte)
/FT/Ch/Ff 131072/T(home_port)/Opt[(Porto)(Lagos)]/V(Porto)
/FT/Tx/Ff 4096/T(form[0].Page1[0].remarks[0])/V(Wants a call\\rfrom Bo Lindahl)
/FT/Tx/T(f1_04)/V(Harbour Lines)
/FT/Tx/T(empty)
/FT/Tx/Ff 8192/T(secret)/V(xyzzy)
/FT/Btn/T(agree)/V/Yes/AS/Yes""".splitlines()


def a_form(fields: Sequence[str] = _FIELDS, text: str = "Application") -> bytes:
    numbers = range(6, 6 + len(fields))
    content = f"BT /F 12 Tf 9 9 Td ({text}) Tj ET"
    objects = [
        f"<</Type/Catalog/Pages 2 0 R/AcroForm<</Fields[{(kids := ' '.join(f'{n} 0 R' for n in numbers))}]>>>>",
        "<</Type/Pages/Kids[3 0 R]/Count 1>>",
        f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>/Annots[{kids}]>>",
        f"<</Length {len(content)}>>stream\n{content}\nendstream",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        *(f"<</Type/Annot/Subtype/Widget/Rect[9 9 200 29]{field}>>" for field in fields),
    ]
    body = "".join(f"{number} 0 obj{each}endobj\n" for number, each in enumerate(objects, 1))
    return f"%PDF-1.7\n{body}trailer<</Root 1 0 R>>".encode()


def test_what_was_typed_into_a_pdfs_form_is_read(converter: Converter) -> None:
    found = parse("a.pdf", a_form(), converter)
    assert found.text.split("\n\n") == [
        "Application",
        "Name of the applicant: Ines Duarte",
        "home port: Porto",
        "remarks: Wants a call from Bo Lindahl",
        "Harbour Lines",
    ]
    assert found.place_at(found.text.index("Bo Lindahl")) == "form on page 1"


def test_a_form_that_nobody_filled_in_adds_nothing(converter: Converter) -> None:
    assert parse("a.pdf", a_form(["/FT/Tx/T(empty)"]), converter).text == "Application"


def test_a_form_that_is_a_program_is_named_as_not_read(converter: Converter) -> None:
    """Its page says no more than that it is to be opened by another program."""
    form = a_form([]).replace(b"<</Fields", b"<</XFA(x)/Fields")
    assert parse("a.pdf", form, converter).empty == ()
    program = form.replace(b"/Type/Catalog", b"/Type/Catalog/NeedsRendering true")
    assert parse("a.pdf", program, converter).empty == ("form",)
    assert parse("a.pdf", a_form([]), converter).empty == ()


def test_many_fields_and_long_ones_are_read_within_the_limits(converter: Converter) -> None:
    fields = [f"/FT/Tx/T(name)/V(Person {'abcdefghij'[n % 10] * 9} {n})" for n in range(3000)]
    form = a_form([*fields, f"/FT/Tx/T(long)/V({'word ' * 100_000})"])
    assert parse("a.pdf", form, converter).text.count("name: ") == 3000


def test_scanned_pages_with_a_note_are_refused_as_scanned(converter: Converter) -> None:
    document = fpdf.FPDF()
    document.add_page()
    document.text_annotation(50, 50, "Ask Tom Bell first.")
    with pytest.raises(RejectedError, match="no text in 1 pages: scanned, perhaps"):
        parse("a.pdf", bytes(document.output()), converter)


@pytest.mark.parametrize(
    ("bodies", "text"),
    [
        pytest.param({"10130102": b"<p>Ask <b>Tom</b> Bell.</p>"}, "Ask Tom Bell.", id="bytes alone"),
        pytest.param(
            {"10130102": '<meta charset="iso-8859-2"><p>Dvořák left.</p>'.encode("iso-8859-2")},
            "Dvořák left.",
            id="bytes of a code page",
        ),
        pytest.param({"1000001F": "Plain.".encode("utf-16-le"), "10130102": b"<p>Plain.</p>"}, "Plain.", id="text too"),
        pytest.param({"1013001F": "<p>Written.</p>".encode("utf-16-le")}, "Written.", id="characters"),
        pytest.param({"1013001E": b"<td>Ann<td>Caf&eacute;"}, "Ann | Café", id="letters, cells and entities"),
        pytest.param({"1000001F": b"\r\0\n\0", "10130102": b"<p>Said."}, "Said.", id="a blank text too"),
        pytest.param(
            {"1000001F": "Hi.\r\n\r\nAnn Lee\r\nRiga".encode("utf-16-le")}, "Hi.\n\nAnn Lee\nRiga", id="lines"
        ),
    ],
)
def test_the_body_of_an_outlook_mail_is_read_once(bodies: dict[str, bytes], text: str, converter: Converter) -> None:
    mail = mail_with({}, {"0037001F": "Offer".encode("utf-16-le"), **bodies})
    assert parse("a.msg", mail, converter).text == f"Subject: Offer\n\n{text}"


PAGE = b"<html><body><table><tr><td>Ann Lee</td><td>Glass Ltd</td></tr></table></body></html>"
IN_A_MAIL = (
    b"Date: Mon, 1 Jan 2026 12:00:00 +0000\nMessage-ID: <1>\nSubject: Exported\nMIME-Version: 1.0\n"
    b"Content-Type: multipart/related; boundary=x\n\n--x\nContent-Type: text/html\n\n" + PAGE + b"\n"
    b"--x\nContent-Type: text/css\n\nbody { color: red }\n--x--\n"
)


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("rtf.doc", written.EACH["a.rtf"], written.TEXT),
        ("new.doc", written.EACH["a.docx"], written.TEXT),
        ("old.docx", written.EACH["a.doc"], f"Minutes\n\n{written.TEXT}"),
        ("page.doc", PAGE, "Ann Lee | Glass Ltd"),
        ("text.doc", b"Ann Lee of Glass Ltd", "Ann Lee of Glass Ltd"),
        ("table.xls", PAGE, "Ann Lee | Glass Ltd"),
        ("tabs.xls", b"Name\tFirm\nAnn Lee\tGlass Ltd", "Name\tFirm\nAnn Lee\tGlass Ltd"),
        ("new.ppt", written.EACH["a.pptx"], f"## Plan\n\n{written.TEXT}"),
        ("portable.docx", written.EACH["a.pdf"], written.TEXT),
        *(
            (name, IN_A_MAIL, "Subject: Exported\nDate: Mon, 1 Jan 2026 12:00:00 +0000\n\nAnn Lee | Glass Ltd")
            for name in ("confluence.doc", "saved.mhtml")
        ),
    ],
)
def test_an_office_file_is_read_as_what_it_is(name: str, data: bytes, text: str, converter: Converter) -> None:
    """Programs write all of these, and Office opens them; they were refused as broken files of the other kind."""
    assert parse(name, data, converter).text == text


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("torn.doc", written.EACH["a.docx"][:-200], r"not converted: DOCX parsing failed.*; by its content it is"),
        ("page.docx", PAGE, "not converted: DOCX parsing failed"),
        ("page.pdf", PAGE, "not converted: Invalid PDF"),
        ("locked.docx", compound({"EncryptedPackage": b"x" * 99}), "^not converted: encrypted$"),
        ("bytes.doc", bytes(range(256)) * 9, "not converted|binary"),
    ],
)
def test_what_it_is_by_its_content_is_said(name: str, data: bytes, reason: str, converter: Converter) -> None:
    with pytest.raises(RejectedError, match=reason):
        parse(name, data, converter)


def test_a_drawing_in_a_book_is_not_read_as_letters(converter: Converter) -> None:
    drawing = f'Ann Lee.</p><svg xmlns="http://www.w3.org/2000/svg"><path d="{"M 1 2 " * 500}"/></svg><p>Bo Wu.'
    text = parse("a.epub", written.book(drawing), converter).text
    assert "Ann Lee." in text and "Bo Wu." in text and len(text) < 100
