"""What stands beside the text of an Office file is read: comments, a speaker's notes, footnotes, words of charts."""

import io
import zipfile

import docx
import openpyxl
import pptx
import pytest
from openpyxl.comments import Comment
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from written import open_document, saved, zipped

from ec1.documents.convert import Converter
from ec1.documents.ledger import DocumentKey
from ec1.documents.office_parts import beside
from ec1.documents.parse import Document, parse_document
from ec1.documents.settings import ConversionSettings

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
RELATED = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
OF_WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml"


@pytest.fixture(scope="module")
def converter() -> Converter:
    return Converter(ConversionSettings())


def parse(name: str, data: bytes, converter: Converter) -> Document:
    return parse_document(DocumentKey("all", name), data, converter)


def places(document: Document) -> dict[str, str]:
    ends = [start for start, _ in document.places[1:]] + [len(document.text)]
    return {name: document.text[start:end].strip() for (start, name), end in zip(document.places, ends, strict=True)}


def files_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def with_notes(data: bytes) -> bytes:
    """A Word file with a footnote and an endnote of one number, of which kreuzberg keeps one."""
    files = files_of(data)
    relations, types = "word/_rels/document.xml.rels", "[Content_Types].xml"
    for kind in ("footnote", "endnote"):
        note = f'<w:{kind} w:id="2"><w:p><w:r><w:t>This is the {kind} of Dana Fox.</w:t></w:r></w:p></w:{kind}>'
        files[f"word/{kind}s.xml"] = f'<?xml version="1.0"?><w:{kind}s {W}>{note}</w:{kind}s>'.encode()
        added = f'<Relationship Id="r{kind}" Type="{RELATED}/{kind}s" Target="{kind}s.xml"/></Relationships>'
        files[relations] = files[relations].replace(b"</Relationships>", added.encode())
        added = f'<Override PartName="/word/{kind}s.xml" ContentType="{OF_WORD}.{kind}s+xml"/></Types>'
        files[types] = files[types].replace(b"</Types>", added.encode())
    references = '<w:r><w:footnoteReference w:id="2"/></w:r><w:r><w:endnoteReference w:id="2"/></w:r></w:p>'
    files["word/document.xml"] = files["word/document.xml"].replace(b"</w:p>", references.encode(), 1)
    return zipped(files)


def test_comments_head_and_footnotes_of_a_word_file(converter: Converter) -> None:
    document = docx.Document()
    run = document.add_paragraph().add_run("The offer of Northwind was signed.")
    document.sections[0].header.paragraphs[0].text = "Baltic Timber, Riga"
    document.sections[0].footer.paragraphs[0].text = "Baltic Timber, Riga"
    document.add_comment(run, text="Ask Tom Bell first.", author="Ann Lee")
    found = parse("a.docx", with_notes(saved(document)), converter)
    assert found.text.startswith("The offer of Northwind was signed.")
    assert places(found)["comments"] == "Ann Lee: Ask Tom Bell first."
    assert places(found)["headers and footers"] == "Baltic Timber, Riga", "a letter's head says who wrote it"
    for kind in ("footnote", "endnote"):
        assert found.text.count(f"This is the {kind} of Dana Fox.") == 1


def test_notes_and_charts_of_slides(converter: Converter) -> None:
    presentation = pptx.Presentation()
    for number in range(12):
        slide = presentation.slides.add_slide(presentation.slide_layouts[1])
        slide.shapes.title.text = f"Plan {number}"
        slide.notes_slide.notes_text_frame.text = f"Say on page {number} that Tom Bell agrees."
    data = CategoryChartData()
    data.categories = ["Northwind", "Plan 3"]
    data.add_series("Revenue of Lyon", (1.5, 2.5))
    slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, 0, 0, 9**6, 9**6, data)
    found = places(parse("a.pptx", saved(presentation), converter))
    assert found["speaker notes"].split("\n\n") == [f"Say on page {each} that Tom Bell agrees." for each in range(12)]
    assert "Northwind" in found["charts and drawings"] and "Revenue of Lyon" in found["charts and drawings"]
    assert "1.5" not in found["charts and drawings"] and "Plan 3" not in found["charts and drawings"], "read already"


def test_comments_of_a_workbook(converter: Converter) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet["A1"] = "Northwind"
    sheet["A1"].comment = Comment("Ann Lee:\nAsk Tom Bell.", "Ann Lee")
    sheet["A2"].comment = Comment(
        "[Threaded comment] Your version of Excel allows you to read this. Comment: Go on.", "x"
    )
    files = files_of(saved(book))
    threads = (
        '<ThreadedComments xmlns="t"><threadedComment ref="A2"><text>Go on.</text></threadedComment></ThreadedComments>'
    )
    files["xl/threadedComments/threadedComment1.xml"] = threads.encode()
    found = places(parse("a.xlsx", zipped(files), converter))
    assert found["comments"] == "Ann Lee: Ask Tom Bell.\n\nGo on."
    assert "Northwind" in found["sheet Sheet"]


@pytest.mark.parametrize("kind", ["text", "spreadsheet"])
def test_comments_of_an_open_document(kind: str, converter: Converter) -> None:
    comment = (
        "<office:annotation><dc:creator>Ann Lee</dc:creator><dc:date>2026-05-01T10:00:00</dc:date>"
        "<text:p>Ask <text:span>Tom</text:span> Bell.</text:p></office:annotation>"
    )
    body = f"<text:p>Northwind signed.{comment}</text:p>"
    if kind == "spreadsheet":
        cell = f'<table:table-cell office:value-type="string">{comment}<text:p>Northwind signed.</text:p>'
        row = f"<table:table-row>{cell}</table:table-cell></table:table-row>"
        body = f'<table:table table:name="one">{row}</table:table>'
    data = open_document(body, kind)
    found = parse({"text": "a.odt", "spreadsheet": "a.ods"}[kind], data, converter)
    assert places(found)["comments"] == "Ann Lee: Ask Tom Bell."
    assert found.text.count("Northwind signed.") == 1 and found.text.count("Tom") == 1


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(b"no XML", id="no XML"),
        pytest.param(b"", id="nothing"),
        pytest.param(b'<!DOCTYPE a [<!ENTITY b "bbbb">]><a><p><t>&b;</t></p></a>', id="entities"),
        pytest.param('<!DOCTYPE a [<!ENTITY b "b">]><a><p><t>&b;</t></p></a>'.encode("utf-16"), id="in UTF-16"),
        pytest.param(b"<a>" * 100_000, id="never closed"),
    ],
)
def test_a_broken_part_takes_nothing_from_the_text(part: bytes, converter: Converter) -> None:
    document = docx.Document()
    document.add_paragraph("The offer of Northwind was signed.")
    found = parse("a.docx", zipped({**files_of(saved(document)), "word/comments.xml": part}), converter)
    assert found.text == "The offer of Northwind was signed."
    assert found.empty == ("comments",), "and is told"


def test_what_is_no_office_file_has_no_such_parts() -> None:
    assert beside(b"", "") == beside(b"PK\x03\x04 and no more", "") == beside(zipped({"a.txt": b"a"}), "") == []


def test_only_what_is_not_read_yet_stands_beside() -> None:
    notes = b"<p><r><t>Yes.</t></r></p><p><r><t>Ann</t></r><r><tab/><t>Lee</t></r></p>"
    deleted = b"<p><del><delText>No</delText></del></p>"
    # Word writes a part of notes without a note, too.
    data = zipped({"word/footnotes.xml": b"<c>" + notes + deleted + b"</c>", "word/comments.xml": b"<c/>"})
    assert beside(data, "Yesterday she left.") == [["footnotes", "Yes.\n\nAnn Lee"]]
    assert beside(data, "Yes, **Ann  Lee** said.") == []
