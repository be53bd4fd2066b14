"""Lines, tabs and cells of Office files stay apart: names that stand beside each other are not one."""

import io
import re
import time
import zipfile

import pytest
import written

from ec1.documents.convert import Converter
from ec1.documents.ledger import DocumentKey
from ec1.documents.media_types import MEDIA_TYPES
from ec1.documents.office_text import readable
from ec1.documents.parse import parse_document
from ec1.documents.settings import ConversionSettings

CELL = '<table:table-cell office:value-type="string">{}</table:table-cell>'


def text_of(name: str, data: bytes) -> str:
    converter = Converter(ConversionSettings())
    try:
        return parse_document(DocumentKey("all", name), data, converter).text
    finally:
        converter.close()


def with_part(data: bytes, part: str, pattern: str, content: str) -> bytes:
    """An Office file whose part has this content in the place of what the pattern finds first."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    assert part in files and re.search(pattern, files[part].decode(), re.DOTALL)
    files[part] = re.sub(pattern, lambda _: content, files[part].decode(), count=1, flags=re.DOTALL).encode()
    return written.zipped(files)


def word(body: str) -> bytes:
    return with_part(written.EACH["a.docx"], "word/document.xml", "(?<=<w:body>).*(?=</w:body>)", body)


def paragraph(*runs: str) -> str:
    return f"<w:p>{''.join(f'<w:r>{each}</w:r>' for each in runs)}</w:p>"


TABS = paragraph("<w:t>Name:</w:t>", "<w:tab/>", "<w:t>Ann Lee</w:t>").replace(
    "<w:p>", '<w:p><w:pPr><w:tabs><w:tab w:val="left" w:pos="720"/></w:tabs></w:pPr>'
)
LINES = paragraph('<w:t>Ann Lee</w:t><w:br/><w:t>Smith</w:t><w:noBreakHyphen/><w:t>Jones</w:t><w:br w:type="page"/>')
ROW = "<w:tbl><w:tr><w:tc>{}</w:tc><w:tc>{}</w:tc></w:tr></w:tbl>".format(
    paragraph("<w:t>Ann Lee</w:t>") + paragraph("<w:t>Glass &amp; Sons</w:t>") + "<w:p />",
    paragraph("<w:t>Riga</w:t><w:br/>"),
)


def test_word_keeps_tabs_lines_and_what_stands_in_a_cell_apart() -> None:
    """`Name:Ann Lee`, `Ann Lee SmithJones` and `Ann Lee Glass Sons` were read."""
    assert text_of("a.docx", word(TABS + LINES + ROW + paragraph("<w:t>End.</w:t>"))).split("\n\n") == [
        *("Name:\tAnn Lee", "Ann Lee\nSmith-Jones"),
        *("| Ann Lee; Glass & Sons | Riga |\n| --- | --- |", "End."),
    ]


def test_slides_keep_lines_and_tabs_apart() -> None:
    said = "<a:r><a:t>Ann Lee</a:t></a:r><a:br><a:rPr lang='en'/></a:br><a:r><a:t>Glass\tLtd</a:t></a:r>"
    data = with_part(written.EACH["a.pptx"], "ppt/slides/slide1.xml", "<a:r>.*?</a:r>", said)
    assert text_of("a.pptx", data).startswith("## Ann Lee\nGlass\tLtd\n\n")


@pytest.mark.parametrize(("kind", "suffix"), [("text", ".odt"), ("spreadsheet", ".ods")])
def test_cells_of_opendocument_keep_their_lines_apart(kind: str, suffix: str) -> None:
    """`Ann LeeGlassLtd` was read."""
    cells = CELL.format("<text:p>Ann Lee</text:p><text:p>Glass<text:tab/>Ltd<text:line-break/>Riga</text:p>")
    row = f"<table:table-row>{cells}{CELL.format('<text:p>x</text:p>')}</table:table-row>"
    data = written.open_document(f'<table:table table:name="S">{row}</table:table>', kind)
    assert "| Ann Lee; Glass\tLtd; Riga | x |" in text_of(f"a{suffix}", data)


def test_slides_of_opendocument_are_read() -> None:
    """The library reads nothing in them."""
    box = "<draw:frame presentation:class='outline'><draw:text-box>{}</draw:text-box></draw:frame>"
    cells = "".join(CELL.format(f"<text:p>{each}</text:p>") for each in ("Glass</text:p><text:p>Ltd", "Riga"))
    page = (
        box.format("<text:p>Sales</text:p>"),
        box.format("<text:list><text:list-item><text:p>Bo<text:tab/>Wu &amp; C</text:p></text:list-item></text:list>"),
        f"<draw:frame><table:table><table:table-row>{cells}</table:table-row></table:table></draw:frame>",
        f"<presentation:notes>{box.format('<text:p>Ask Di Roe</text:p>')}</presentation:notes>",
    )
    data = written.open_document(f'<draw:page draw:name="p1">{"".join(page)}</draw:page>', "presentation")
    assert text_of("a.odp", data).split("\n\n") == [
        *("Sales", "- Bo\tWu & C", "| Glass; Ltd | Riga |\n| --- | --- |", "Ask Di Roe")
    ]


def test_a_box_in_a_paragraph_of_opendocument_is_apart() -> None:
    frame = "<draw:frame xmlns:draw='d'><draw:text-box><text:p>Ann Lee</text:p><text:p>Riga</text:p></draw:text-box>"
    data = written.open_document(f"<text:p>Offer{frame}</draw:frame></text:p><text:p>Dear Bo</text:p>")
    assert text_of("a.odt", data) == "Offer\nAnn Lee\nRiga\n\nDear Bo"


def test_signs_of_rich_text_are_read_as_they_are_meant() -> None:
    """`Smith_Jones~Ltd` was read, and the lines of a cell in one."""
    rows = rb"\pard\intbl\trowd\cellx9\cellx99 Ann Lee\par Glass Ltd\cell Riga\line Port\cell\row"
    said = rb"\pard Name:\tab Ann Lee\par Smith\_Jones\~Ltd\line C:\\par \u321 ?\par"
    assert text_of("a.rtf", rb"{\rtf1\ansi " + rows + said + b"}").split("\n\n") == [
        "| Ann Lee; Glass Ltd | Riga; Port |\n| --- | --- |",
        *("Name:\tAnn Lee", "Smith-Jones\xa0Ltd\nC:\\par Ł"),
    ]


def test_the_lines_of_a_workbooks_cell_stay_apart() -> None:
    book = written.workbook(People=[("Ann Lee\nBo Wu\n", "Riga")])
    assert "| Ann Lee; Bo Wu | Riga |" in text_of("a.xlsx", book)


def test_a_hostile_part_takes_no_time() -> None:
    started = time.process_time()
    for part, suffix in (("<a:br>" * 300_000, ".pptx"), ("<w:tab" * 300_000 + "<w:p>" * 300_000, ".docx")):
        name = {"pptx": "ppt/slides/slide1.xml", "docx": "word/document.xml"}[suffix[1:]]
        data = written.zipped({name: part.encode()})
        assert readable(data, MEDIA_TYPES[suffix]) == data
    assert time.process_time() - started < 20
