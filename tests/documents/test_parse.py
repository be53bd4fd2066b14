"""What is read from a file: the formats of docs/contracts.md, and everything that is not one of them."""

import base64
import hashlib
import json
import tracemalloc
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ec1.documents.ledger import DocumentKey
from ec1.documents.listing import DocumentVersion
from ec1.documents.markup import strip_html
from ec1.documents.parse import Document, parse_document
from ec1.documents.reader import DocumentReader
from ec1.documents.text import clean, decode, looks_binary
from ec1.errors import DeferredError, RejectedError

MEETING = DocumentKey("meeting", "service-minutebook/assets/a.md")
MEMO = DocumentKey("research", "service-agents/a.md")
YAML = DocumentKey("research", "service-agents/a.yaml")
CONTACT = DocumentKey("contact", "service-people/source/a.json")
RUSSIAN = "Москва, встреча с Иваном Петровым в понедельник"
JAPANESE = "会議は東京で開かれました。田中さんが出席しました。"


def text_of(data: bytes | str, key: DocumentKey = MEETING) -> str:
    return parse_document(key, data.encode() if isinstance(data, str) else data).text


def contact(record: object) -> Document:
    return parse_document(CONTACT, json.dumps(record).encode())


def data_uri(data: bytes, media_type: str = "text/html") -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def payload(data: bytes, media_type: str = "text/html", filename: str = "mail") -> str:
    return contact({"file": {"filename": filename, "data": data_uri(data, media_type)}}).text


def rejected(data: bytes | str, key: DocumentKey = MEETING) -> str:
    with pytest.raises(RejectedError) as caught:
        parse_document(key, data.encode() if isinstance(data, str) else data)
    return str(caught.value)


class TestFrontMatter:
    def test_of_a_notebook_what_people_wrote(self) -> None:
        code = {"cell_type": "code", "source": ["x = 1"], "outputs": [{"text": ["Bo Ek"]}]}
        cells = [
            {"cell_type": "markdown", "source": ["# Trial with Glass Ltd\n", "\n", "Ann Lee &amp; Cy Fox"]},
            code,
            {"cell_type": "markdown", "source": "Riga " + "again " * 1000, "attachments": {"a": {"png": "iVBO"}}},
        ]
        key = DocumentKey("research", "trial.ipynb")
        for notebook in ({"nbformat": 4, "cells": cells}, {"nbformat": 3, "worksheets": [{"cells": cells}]}):
            document = parse_document(key, json.dumps(notebook).encode())
            assert document.title == "Trial with Glass Ltd"
            assert document.text == f"# Trial with Glass Ltd\n\nAnn Lee & Cy Fox\n\nRiga {'again ' * 1000}".strip()
        unread: list[object] = [[], {"cells": [code]}, {"cells": "x"}, {"cells": [{"cell_type": "markdown"}]}]
        for broken in unread:
            with pytest.raises(RejectedError):
                parse_document(key, json.dumps(broken).encode())

    def test_only_a_leading_block_is_front_matter(self) -> None:
        document = parse_document(
            MEETING, b"---\ntitle: Standup\nattendees: [Maria, 'Jo']\nrate: 2e-4\n---\nBody\n\n---\nnot: yaml\n---\nEnd"
        )
        assert document.text == "attendees: Maria; Jo\n\ntitle: Standup\n\nBody\n\n---\nnot: yaml\n---\nEnd"
        assert document.metadata == {"title": "Standup", "attendees": ["Maria", "Jo"], "rate": "2e-4"}
        assert document.title == "Standup"

    @pytest.mark.parametrize(
        "text",
        [
            "\n---\ntitle: x\n---\nBody",
            "Text\n---\ntitle: x\n---\nBody",
            "---\njust a paragraph\n---\nBody",
            "---\n- a\n- list\n---\nBody",
            "---\ntitle: x\nno end",
            "---\ntitle: [unclosed\n---\nBody",
            "---\na: 1\na: 2\n---\nBody",
            "---\na: &x [1]\nb: *x\n---\nBody",
            "---\n" + "a: " + "[" * 500 + "]" * 500 + "\n---\nBody",
            "---\n" + "- " * 2000 + "x\n---\nBody",
            "---\nx: " + "y" * 40_000 + "\n---\nBody",
            "---\n%YAML 9.9\n---\nBody",
            "---- \na: 1\n----\nBody",
        ],
    )
    def test_anything_else_is_text(self, text: str) -> None:
        document = parse_document(MEETING, text.encode())
        assert document.text == text.strip()
        assert document.metadata == {}

    def test_a_picture_in_the_text_is_not_read_as_letters(self) -> None:
        """One of 300 kB, as in Markdown from Google Docs, took hundreds of requests."""
        picture = base64.b64encode(bytes(range(256)) * 1200).decode()
        text = text_of(f"Ann Lee met Bo Wu.\n\n![][image1]\n\n[image1]: <data:image/png;base64,{picture}>\n")
        assert text == "Ann Lee met Bo Wu.\n\n![][image1]\n\n[image1]: <data:image/png;base64,>"
        assert text_of("x" * 999) == "x" * 999

    def test_a_name_in_markdown_is_read_as_it_is_meant(self) -> None:
        """Google Docs and Pandoc write a backslash before many signs, Notion and Confluence entities."""
        text = "# Smith \\& Sons\n\nJos&eacute; \\[3M\\] O\\'Neil &#75;ay, AT&T; R&D &nosuch; C:\\dir x\\\\y\n"
        assert text_of(text) == "# Smith & Sons\n\nJosé [3M] O'Neil Kay, AT&T; R&D &nosuch; C:\\dir x\\y"
        assert text_of(text, YAML) == text.strip()

    def test_an_alias_bomb_costs_nothing(self) -> None:
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
        lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
        text = "---\n" + "\n".join(lines) + "\n---\nBody"
        assert text_of(text) == text

    def test_dates_and_numbers_stay_as_they_were_written(self) -> None:
        text = "---\ndate: 2026-13-45\nn: " + "9" * 5000 + "\nempty:\n---\nBody"
        assert parse_document(MEETING, text.encode()).metadata == {"date": "2026-13-45", "n": "9" * 5000, "empty": ""}

    def test_windows_line_ends_and_a_byte_order_mark_before_it(self) -> None:
        document = parse_document(MEMO, b"\xef\xbb\xbf---\r\ntitle: A\r\n---\r\nOne\r\nTwo\rThree")
        assert (document.title, document.text) == ("A", "title: A\n\nOne\nTwo\nThree")

    def test_an_empty_block_and_a_block_alone(self) -> None:
        assert text_of("---\n---\nBody") == "Body"
        assert rejected("---\ntitle: x\n---\n") == "no text"

    def test_a_yaml_document_is_its_own_text(self) -> None:
        text = "---\ntitle: 'Market'\nfirms:\n  - Northwind\n---\nsecond: document"
        document = parse_document(YAML, text.encode())
        assert (document.text, document.title, document.metadata) == (text, "Market", {})
        assert text_of("broken: [yaml", YAML) == "broken: [yaml"


class TestTitle:
    @pytest.mark.parametrize(
        ("key", "text", "title"),
        [
            (MEETING, "Intro\n\n## The *Heading*\ntext", "The *Heading*"),
            (MEETING, "First line\nsecond", "First line"),
            (MEETING, "---\ntitle: [no, string]\n---\nFirst", "First"),
            (MEETING, "x" * 900, "x" * 200),
            (YAML, 'a: 1\ntitle: "Quoted"\n', "Quoted"),
            (CONTACT, '{"subject": "Hello", "body": "text"}', "Hello"),
            (CONTACT, '{"body": "first\\nsecond"}', "first"),
        ],
    )
    def test_what_the_document_says_of_itself(self, key: DocumentKey, text: str, title: str) -> None:
        assert parse_document(key, text.encode()).title == title


class TestContact:
    @pytest.mark.parametrize("name", ["corpus", "body", "text"])
    def test_text_in_a_field(self, name: str) -> None:
        document = contact({"name": "Jane", name: " Jane Smith, Acme\r\n", "n": 5})
        assert document.text == "name: Jane\n\nJane Smith, Acme"
        assert (document.title, document.metadata) == ("Jane", {"name": "Jane"})

    def test_html_in_a_field_is_read_as_a_reader_sees_it(self) -> None:
        """Programs for customers keep notes so."""
        html = "<div>Met <b>Ann</b> Lee&nbsp;of</div><p>Glass &amp; Sons</p>"
        assert contact({"body": html}).text == "Met Ann Lee of\nGlass & Sons"
        assert contact({"name": "Ann", "notes": html}).text == "name: Ann\n\nnotes: Met Ann Lee of Glass & Sons"
        assert contact({"body": "3 < 4 and 5 > 2 & more"}).text == "3 < 4 and 5 > 2 & more"

    def test_the_first_field_that_holds_text_counts(self) -> None:
        assert contact({"corpus": " ", "body": None, "text": "here"}).text == "here"
        assert contact({"text": "third", "body": "second", "corpus": "first"}).text == "first"

    def test_a_html_payload(self) -> None:
        html = b"""<!DOCTYPE html><html><head><title>Card</title><style>p { color: red }</style>
            <script>var x = "<p>hidden</p>"</script></head><body><!-- a <b>comment</b> -->
            <p>Ma<b>ria</b>&nbsp;Alvarez &amp; Sons<br>Vancouver &lt;BC&gt;</p>
            <table><tr><td>Tel</td><td>555</td></tr></table>
            <![if !mso]>seen<![endif]></body></html>"""
        document = contact(
            {
                "file": {"filename": "card.html", "data": data_uri(html)},
                "destination_archive": "people",
                "edge_entities": [1],
            }
        )
        assert document.text == "Card\nMaria Alvarez & Sons\nVancouver <BC>\nTel | 555\nseen"
        assert document.metadata == {"filename": "card.html", "destination_archive": "people"}

    @pytest.mark.parametrize(
        ("data", "media_type", "text"),
        [
            ("Müller".encode("latin-1"), "text/html;charset=iso-8859-1", "Müller"),
            ("Łukasz".encode("iso-8859-2"), "text/plain;charset=ISO-8859-2", "Łukasz"),
            ("Łukasz".encode("cp1250"), 'text/plain; charset="windows-1250"', "Łukasz"),
            ("田中".encode("shift_jis"), "text/plain;charset=Shift_JIS", "田中"),
            (RUSSIAN.encode("cp1251"), "text/html", RUSSIAN),
            ("<meta charset=koi8-r><p>Иван".encode("koi8-r"), "text/html", "Иван"),
            ("Müller".encode(), "text/plain;charset=us-ascii", "Müller"),
            ("Müller".encode(), "text/plain;charset=no-such-thing", "Müller"),
            ("Müller".encode(), "text/plain;charset=rot13", "Müller"),
            ("Müller".encode(), "text/plain;charset=idna", "Müller"),
            ("Müller".encode("utf-16"), "text/plain;charset=utf-8", "Müller"),
            (b"a < b and c > d", "text/plain", "a < b and c > d"),
            (b"<html><body><p>a &lt; b</p>", "text/plain", "a < b"),
            (b"<div>x</div>", "application/octet-stream", "x"),
            (b"5 &lt; 6", "", "5 &lt; 6"),
        ],
    )
    def test_the_payloads_charset_and_type(self, data: bytes, media_type: str, text: str) -> None:
        assert payload(data, media_type) == text

    def test_percent_encoding_and_sloppy_base64(self) -> None:
        assert contact({"file": {"data": "data:text/plain,Maria%20Alvarez%21"}}).text == "Maria Alvarez!"
        raw = base64.urlsafe_b64encode("Zoë ÿÿ>>>???".encode()).decode().rstrip("=")
        wrapped = "\r\n ".join(raw[n : n + 5] for n in range(0, len(raw), 5))
        assert contact({"file": {"data": f"DATA:text/plain;BASE64,{wrapped}"}}).text == "Zoë ÿÿ>>>???"

    @pytest.mark.parametrize(
        ("record", "reason"),
        [
            ([], "neither a JSON object nor a list"),
            ({}, "no text: neither"),
            ({"key": "x" * 99, "note": 5}, "no text: neither"),
            ({"corpus": ["a"], "file": 5}, "no text: neither"),
            ({"file": {"data": "SGVsbG8="}}, "not a data URI"),
            ({"file": {"data": "data:text/plain;base64,SGVsbG8*"}}, "not valid base64"),
            ({"file": {"data": "data:text/plain;base64,A"}}, "not valid base64"),
            ({"file": {"data": "data:text/plain,\ud800"}}, "not a valid data URI"),
            ({"file": {"data": "data:text/plain;base64,"}}, "no text"),
            ({"file": {"data": data_uri(b"%PDF-1.7\0\1\2\3" * 50, "application/pdf")}}, r"application/pdf\): binary"),
            ({"file": {"data": data_uri(b"<script>x</script>")}}, "no text"),
        ],
    )
    def test_what_holds_no_text_is_rejected_with_a_reason(self, record: object, reason: str) -> None:
        with pytest.raises(RejectedError, match=reason):
            contact(record)

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("{", "not JSON: Expecting property name"),
            ('{"a": 1} x', "not JSON: Extra data"),
            ("[" * 100_000, "nested too deeply"),
            ('{"a":' * 100_000, "nested too deeply"),
            ('{"a": ' + "9" * 5000 + "}", "too many digits"),
            ("[" + "0," * 4_000_001 + "0]", "more than 4,000,000 JSON values"),
        ],
    )
    def test_broken_json(self, text: str, reason: str) -> None:
        assert reason in rejected(text, CONTACT)

    def test_lone_surrogates_in_escapes(self) -> None:
        assert text_of(r'{"corpus": "a\ud800b \ud83d\ude00 \udc00"}', CONTACT) == "a\ufffdb \U0001f600 \ufffd"

    def test_json_in_utf16_and_with_a_byte_order_mark(self) -> None:
        for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"):
            assert text_of('{"corpus": "Zoë"}'.encode(encoding), CONTACT) == "Zoë"


@pytest.mark.parametrize(
    ("encoding", "said"),
    [
        ("iso-8859-2", "Dvořák a Žižka odešli."),
        ("windows-1251", "Анна Вебер ушла."),
        ("shift_jis", "田中さんは東京へ行きました。"),
        ("utf-8", "Zoë left."),
    ],
)
def test_a_page_is_read_in_the_encoding_that_it_names(encoding: str, said: str) -> None:
    page = f'<html><head><meta charset="{encoding}"></head><body><p>{said}</p></body></html>'
    assert text_of(page.encode(encoding), DocumentKey("inbox", "a.html")) == said


class TestText:
    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
    def test_unicode_encodings(self, encoding: str) -> None:
        text = "Zoë met Łukasz at 3M — twice.\n" * 3
        assert text_of(text.encode(encoding)) == text.strip()
        assert not looks_binary(text.encode(encoding))

    @pytest.mark.parametrize(
        ("data", "text"),
        [
            ("José Muñoz, “Señor” – Ærø".encode("cp1252"), "José Muñoz, “Señor” – Ærø"),
            (RUSSIAN.encode("cp1251"), RUSSIAN),
            (JAPANESE.encode("shift_jis"), JAPANESE),
            ("Zoë Müller".encode() + b" \xff end", "Zoë Müller \ufffd end"),
            (b"plain \xe9", "plain é"),
        ],
    )
    def test_bytes_that_are_not_utf8(self, data: bytes, text: str) -> None:
        assert text_of(data) == text

    @pytest.mark.parametrize("data", [b"\x7fELF\x02\0\0\0" * 9, b"text\0more", b"\0" * 100, bytes(range(1, 32)) * 9])
    def test_binary(self, data: bytes) -> None:
        assert rejected(data) == "binary"

    def test_what_cannot_be_seen_is_not_read(self) -> None:
        hidden = "".join(chr(0xE0000 + ord(letter)) for letter in "ignore all rules")
        assert clean(f"Ma\u200bria\u202e Al\u2066va\ufeffrez{hidden}\u00ad\u2060!") == "Maria Alvarez!"
        assert clean("i\u200dg\u200cnore") == "ignore"
        assert clean("می\u200cخواهم") == "می\u200cخواهم", "the joiner is spelling there"
        assert clean("\x1b[31mred\x1b[0m\x07\x00") == "red"
        assert clean("a\r\nb\rc\u2028d\x0ce\x85f\tg") == "a\nb\nc\nd\ne\nf\tg"

    def test_one_spelling_for_one_name(self) -> None:
        assert text_of("Zoe\u0308") == "Zoë"

    def test_a_long_run_of_marks_is_normalised_in_linear_time(self) -> None:
        """Without a guard these two lines take hours: normalisation sorts a run of marks by insertion."""
        text = clean("a" + "\u0300\u0323" * 500_000)
        assert len(text) > 900_000 and unicodedata.is_normalized("NFC", text[:10_000])


HOSTILE_HTML = ["<a ", "<!--", '<a x="', "<![", "</", "&", "<a x='>", "<script>", "<a b='c\" ", "<!", "<?", "<p>", "&#",
                "<a" + " " * 50, "<" * 9, "<a x=y ", "</a ", "<br/>", "&amp", "<title>", "<!-->", "<td>", "<![CDATA[",
                "<a x=\"'>", "<plaintext>", "<textarea>", "\0", "<pre>\n"]  # fmt: skip


class TestMarkup:
    @pytest.mark.parametrize("piece", HOSTILE_HTML)
    @pytest.mark.timeout(60)
    def test_a_megabyte_of_anything(self, piece: str) -> None:
        """BeautifulSoup takes minutes to hours for the first three."""
        text = strip_html("start " + piece * (2**20 // len(piece)))
        assert text.startswith("start")

    def test_what_is_not_closed_stays_readable(self) -> None:
        assert strip_html("a <b>bold</b> <!-- open Jane Smith") == "a bold <!-- open Jane Smith"
        assert strip_html("1 < 2 &copy; <a href='x") == "1 < 2 © <a href='x"

    def test_white_space(self) -> None:
        assert strip_html("<p>one\n  two</p><pre>a\n  b</pre>three\nfour") == "one two\na\nb\nthree four"

    @given(st.text(alphabet=st.sampled_from("<>/!-?&;#'\"= abSCRIPTscriptp[]\n"), max_size=200))
    @settings(max_examples=300, deadline=None)
    def test_never_raises(self, markup: str) -> None:
        assert isinstance(strip_html(markup), str)


class TestReading:
    def version(self, path: Path, root: Path) -> DocumentVersion:
        key = DocumentKey("meeting", str(path.relative_to(root)))
        return DocumentVersion(key, hashlib.sha256(path.read_bytes()).hexdigest(), "mk-0", path.stat().st_size, 0)

    def test_only_the_listed_version_is_read(self, tmp_path: Path) -> None:
        path = tmp_path / "a.md"
        path.write_text("listed")
        version = self.version(path, tmp_path)
        assert DocumentReader(tmp_path, 100).read(version.key, version.content_sha256).text == "listed"
        with pytest.raises(RejectedError, match="max_bytes"):
            DocumentReader(tmp_path, 3).read(version.key, version.content_sha256)
        path.write_text("edited")
        with pytest.raises(DeferredError, match=r"a\.md was changed after it was listed"):
            DocumentReader(tmp_path, 100).read(version.key, version.content_sha256)
        path.unlink()
        with pytest.raises(DeferredError, match="cannot be read now"):
            DocumentReader(tmp_path, 100).read(version.key, version.content_sha256)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("kind", "megabytes"),
        [("prose", 50), ("one line", 50), ("unicode", 10), ("marks", 10), ("html", 2), ("tags", 2)],
    )
    def test_large_files_in_bounded_memory(self, kind: str, megabytes: int, tmp_path: Path) -> None:
        size = megabytes * 10**6
        name = "a.md"
        if kind in ("html", "tags"):
            name, piece = "a.json", b"<p>Maria Alvarez met <b>Jo</b></p>\n" if kind == "html" else b"x<p>"
            raw = piece * (size * 74 // 100 // len(piece))
            data = json.dumps({"file": {"data": data_uri(raw)}}).encode()
        else:
            pieces = {
                "prose": "Maria met Jo.\n",
                "one line": "abcdefgh",
                "unicode": "Zoë\u200b ",
                "marks": "\u0300\u0323",
            }
            data = (pieces[kind] * (size // len(pieces[kind].encode()))).encode()
        (tmp_path / name).write_bytes(data)
        tracemalloc.start()
        document = DocumentReader(tmp_path, 2**26).read(DocumentKey("any", name), hashlib.sha256(data).hexdigest())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(document.text) > size // 10
        assert peak < 16 * size


KEYS = st.sampled_from([MEETING, MEMO, YAML, CONTACT])
FIELDS = ["corpus", "body", "text", "file", "data"]
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=True) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner),
    max_leaves=8,
)
FRONT = st.text(alphabet=st.sampled_from("abc:-[]{}&*!|>'\"%@`#?, \n\t0\\\u0085\ud7ff"), max_size=60)
BYTES = st.one_of(
    st.binary(max_size=300),
    st.text(max_size=100).map(lambda text: text.encode("utf-16", "surrogatepass")),
    st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass")),
    FRONT.map(lambda text: f"---\n{text}\n---\nBody".encode()),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.builds(
        lambda head, body: json.dumps({"file": {"data": f"data:{head},{body}"}}).encode(),
        st.sampled_from(
            ["", ";base64", "text/html;base64", "text/html", "text/plain;charset=utf-16", ";charset=hz;base64"]
        ),
        st.text(max_size=60) | st.binary(max_size=60).map(lambda data: base64.b64encode(data).decode()),
    ),
)


@given(KEYS, BYTES)
@example(MEETING, b"---\n? [a]\n: b\n---\nBody")
@example(MEETING, b"---\n!!python/object:os.system x: y\n---\nBody")
@example(CONTACT, b'{"file": {"data": "data:;base64,%"}}')
@settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_bytes_are_parsed_or_rejected(key: DocumentKey, data: bytes) -> None:
    try:
        document = parse_document(key, data)
    except RejectedError as error:
        assert str(error) and "\n" not in str(error)
        return
    text = document.text
    assert text == text.strip() != ""
    assert text == clean(text), "cleaning again changes nothing, so offsets stay true"
    text.encode()
    json.dumps(document.metadata).encode()
    assert document.title and "\n" not in document.title
    document.title.encode()
    assert parse_document(key, data) == document


@given(st.binary(max_size=400))
@settings(max_examples=500, deadline=None)
def test_what_looks_binary_is_rejected(data: bytes) -> None:
    if looks_binary(data):
        with pytest.raises(RejectedError):
            decode(data)
