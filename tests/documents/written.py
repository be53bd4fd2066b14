"""Documents in the formats of other programs, made with those formats' own writers."""

import gzip
import html
import io
import zipfile
from collections.abc import Sequence
from email.message import EmailMessage
from pathlib import Path

import docx
import fpdf
import openpyxl
import pptx
from PIL import Image, ImageDraw, ImageFont

TEXT = "Ruth Haldane of Baltic Timber met José Carreras in Riga."
"""Stands in each of them."""


def pdf(*pages: str, password: str | None = None) -> bytes:
    """Each page's text is wrapped at the page's width."""
    document = fpdf.FPDF()
    document.set_font("Helvetica", size=12)
    if password:
        document.set_encryption(owner_password=password, user_password=password)
    for page in pages:
        document.add_page()
        document.multi_cell(0, 8, page)
    return bytes(document.output())


def word(*paragraphs: str, rows: tuple[tuple[str, ...], ...] = ()) -> bytes:
    """Paragraphs, then a table."""
    document = docx.Document()
    for paragraph in paragraphs:
        document.add_paragraph(paragraph)
    if rows:
        table = document.add_table(len(rows), len(rows[0]))
        for line, row in enumerate(rows):
            for column, cell in enumerate(row):
                table.cell(line, column).text = cell
    return saved(document)


def slides(title: str, body: str) -> bytes:
    """One slide."""
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    slide.shapes.title.text = title
    slide.placeholders[1].text = body
    return saved(presentation)


def workbook(**sheets: list[tuple[object, ...]]) -> bytes:
    """Rows by sheet."""
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    return saved(book)


def mail(subject: str, body: str, attached: bytes = b"%PDF-1.4") -> bytes:
    """A message from Ann Lee with an attachment, `a.pdf`."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "Ann Lee <ann@example.org>", "bob@example.org", subject
    message.set_content(body)
    message.add_attachment(attached, maintype="application", subtype="pdf", filename="a.pdf")
    return message.as_bytes()


def open_document(body: str, kind: str = "text") -> bytes:
    """An OpenDocument file of that kind (`text`, `spreadsheet`, `presentation`) with this body."""
    names = ("office", "text", "table", "draw", "presentation")
    spaces = " ".join(f'xmlns:{each}="urn:oasis:names:tc:opendocument:xmlns:{each}:1.0"' for each in names)
    content = (
        f'<?xml version="1.0"?><office:document-content {spaces} xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"<office:body><office:{kind}>{body}</office:{kind}></office:body></office:document-content>"
    )
    media_type = f"application/vnd.oasis.opendocument.{kind}"
    manifest = (
        '<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0">'
        f'<manifest:file-entry manifest:full-path="/" manifest:media-type="{media_type}"/></manifest:manifest>'
    )
    files = {"mimetype": media_type, "META-INF/manifest.xml": manifest, "content.xml": content}
    return zipped({name: each.encode() for name, each in files.items()})


def book(text: str) -> bytes:
    """An EPUB of one chapter."""
    container = (
        '<?xml version="1.0"?><container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
        '<rootfiles><rootfile full-path="a.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
    )
    package = (
        '<?xml version="1.0"?><package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata/><manifest>'
        '<item id="a" href="a.xhtml" media-type="application/xhtml+xml"/></manifest>'
        '<spine><itemref idref="a"/></spine></package>'
    )
    chapter = f'<html xmlns="http://www.w3.org/1999/xhtml"><body><p>{text}</p></body></html>'
    files = {"META-INF/container.xml": container, "a.opf": package, "a.xhtml": chapter}
    return zipped({"mimetype": b"application/epub+zip", **{name: each.encode() for name, each in files.items()}})


def rich_text(text: str) -> bytes:
    """RTF, which writes what is not ASCII as its Windows-1252 code."""
    escaped = "".join(each if each.isascii() else f"\\'{each.encode('cp1252')[0]:02x}" for each in text)
    return rf"{{\rtf1\ansi {escaped}}}".encode()


def captions(*said: tuple[str, str]) -> bytes:
    """WebVTT as Teams writes it: (speaker, words), ten seconds each."""
    times = [f"00:{at // 6:02}:{at % 6}0.000" for at in range(len(said) + 1)]
    cues = [
        f"{times[at]} --> {times[at + 1]}\n<v {who}>{html.escape(words, quote=False)}</v>\n"
        for at, (who, words) in enumerate(said)
    ]
    return "\n".join(["WEBVTT\n", *cues]).encode()


def of_office_97(name: str) -> bytes:
    """A file that LibreOffice made: nothing that we have writes these kinds."""
    return gzip.decompress((Path(__file__).parent / "office97" / f"{name}.gz").read_bytes())


def zipped(files: dict[str, bytes]) -> bytes:
    """A ZIP archive."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return stream.getvalue()


def saved(document: object) -> bytes:
    stream = io.BytesIO()
    document.save(stream)  # type: ignore[attr-defined]
    return stream.getvalue()


EACH = {
    "a.pdf": pdf(TEXT),
    "a.docx": word(TEXT),
    "a.pptx": slides("Plan", TEXT),
    "a.xlsx": workbook(People=[("note",), (TEXT,)]),
    "a.odt": open_document(f"<text:p>{TEXT}</text:p>"),
    "a.odp": open_document(f"<draw:page><draw:frame><text:p>{TEXT}</text:p></draw:frame></draw:page>", "presentation"),
    "a.rtf": rich_text(TEXT),
    "a.epub": book(TEXT),
    "a.eml": mail("Timber", TEXT),
    "a.docm": word(TEXT),
    "a.vtt": captions(("Ann Lee", TEXT)),
    "a.srt": f"1\n00:00:01,000 --> 00:00:09,000\n{TEXT}\n".encode(),
    "a.rst": f"Minutes\n=======\n\n{TEXT}\n".encode(),
    **{name: of_office_97(name) for name in ("a.doc", "a.ppt", "a.xls")},
    "a.html": f"<html><head><title>T</title></head><body><p>{TEXT}</p></body></html>".encode(),
    "a.txt": TEXT.encode(),
    "a.csv": f"note\n{TEXT}\n".encode(),
    "a.markdown": TEXT.encode(),
}
"""One file of each kind by name, each with TEXT in it."""


def as_kind(suffix: str, text: str) -> bytes:
    """A text as a file of that kind, made with the kind's own writer; paragraphs stay apart."""
    paragraphs = text.split("\n\n")
    match suffix:
        case ".pdf":
            # Its built-in fonts have no letters beyond Windows-1252.
            return pdf(text.encode("cp1252", "replace").decode("cp1252"))
        case ".docx":
            return word(*paragraphs)
        case ".eml":
            return mail("A note", text)
        case ".vtt":
            return captions(*(("Ann Lee", " ".join(each.split())) for each in paragraphs if each.strip()))
        case ".html":
            return f"<html><body>{''.join(f'<p>{html.escape(each)}</p>' for each in paragraphs)}</body></html>".encode()
        case _:
            return text.encode()


FOLDERS = {".pdf": "Annual reports", ".docx": "contracts/2025", ".eml": "mail", ".html": "intranet", ".txt": "notes"}


def mixed_folder(root: Path, texts: Sequence[str], files: int = 36) -> None:
    """So many documents of each of these kinds in turn, each in its kind's folder, and four files more: a workbook, an
    encrypted PDF, and two of kinds that are not read."""
    kinds = [*FOLDERS, ".md"]
    for number in range(files):
        text, suffix = texts[number % len(texts)], kinds[number % len(kinds)]
        path = root / FOLDERS.get(suffix, "notes") / f"{number:02} note{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(as_kind(suffix, f"Paper {number}.\n\n{text}"))
    (root / "contracts" / "people.xlsx").write_bytes(workbook(People=[("name",), ("Ruth Haldane of Baltic Timber",)]))
    (root / "Annual reports" / "locked.pdf").write_bytes(pdf("secret", password="x"))
    (root / "notes" / "voice.mp3").write_bytes(b"ID3")
    (root / "notes" / "photo.jpg").write_bytes(b"\xff\xd8\xff")


def picture(text: str, kind: str = "PNG") -> bytes:
    """A picture with lines of text, such as a scanner makes."""
    return _drawn([text], kind)


def scanned(*pages: str) -> bytes:
    """A PDF whose pages are pictures."""
    return _drawn(pages, "PDF")


def annexed(text: str, scan: str, stamp: str) -> bytes:
    """A PDF with a page of text, and one that is a picture with a line of text below."""
    document = fpdf.FPDF()
    document.set_font("helvetica", size=12)
    document.add_page()
    document.multi_cell(0, text=text)
    document.add_page()
    document.image(io.BytesIO(picture(scan)), x=0, y=0, w=210)
    document.text(20, 280, stamp)
    return bytes(document.output())


def _drawn(texts: Sequence[str], kind: str) -> bytes:
    images = []
    for text in texts:
        image = Image.new("RGB", (1000, 300), "white")
        ImageDraw.Draw(image).text((20, 20), text, fill="black", font=ImageFont.load_default(28))
        images.append(image)
    stream = io.BytesIO()
    more = {"save_all": True, "append_images": images[1:]} if images[1:] else {}
    images[0].save(stream, kind, **more)
    return stream.getvalue()
