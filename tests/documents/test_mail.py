"""What a mail says, as a person would read it: in whatever encoding, with HTML or without, and nothing twice."""

import pytest

from ec1.documents.mail_text import decoded, mail_text
from ec1.errors import RejectedError

HEAD = b"Subject: Offer\nFrom: Ann Lee <ann@example.org>\n"
SHORT = b"Content-Type: text/plain\n\nPlease view this in HTML."


def body(content: bytes, head: bytes = HEAD) -> str:
    """What a mail with this content says below its headers."""
    return mail_text(head + content)[1].partition("\n\n")[2].strip()


def parts(kind: str, *each: bytes) -> bytes:
    inside = b"".join(b"--%s\n%s\n" % (kind.encode(), part) for part in each)
    return f"Content-Type: multipart/{kind}; boundary={kind}\n\n".encode() + inside + f"--{kind}--\n".encode()


def in_html(text: str, coding: str = "utf-8", named: str = "; charset=utf-8") -> bytes:
    return f"Content-Type: text/html{named}\nContent-Transfer-Encoding: 8bit\n\n".encode() + text.encode(coding)


def test_headers_stand_first_each_in_a_line() -> None:
    head = (
        b"Received: from x\nFROM: Ann Lee\n <ann@example.org>\nTo: =?utf-8?q?Jos=C3=A9?= <j@example.org>\n"
        b"To: bo@example.org\nBcc: Cy Fox <c@example.org>\nSubject: =?iso-2022-jp?B?GyRCMnE1RBsoQg==?=\nDate: today\n"
    )
    assert mail_text(head + b"\nHello.") == (
        "会議",
        "Subject: 会議\nFrom: Ann Lee <ann@example.org>\nTo: José <j@example.org>, bo@example.org\n"
        "Bcc: Cy Fox <c@example.org>\nDate: today\n\nHello.",
    )


@pytest.mark.parametrize("before", [b"\xef\xbb\xbf", b"\r\n\n", b"From ann@example.org Mon Jan  1 00:00:00 2026\n"])
def test_what_stands_before_the_headers_hides_none(before: bytes) -> None:
    assert mail_text(before + HEAD + b"\nHello.") == ("Offer", f"{HEAD.decode()}\nHello.")


def test_lines_stay_lines() -> None:
    """All of a paragraph were joined: `Ann Lee Harbour Lines Lisbon` was one name."""
    text = "Dear Tom,\n\nthe offer stands.\n\nAnn Lee\nHarbour Lines\nLisbon\n> You wrote"
    assert body(b"\n" + text.encode()) == text


PAGE = (
    "<html><head><style>p {}</style></head><body><!--[if mso]><xml>office</xml><![endif]--><h1>Offer</h1><p>Caf&eacute;"
    " Lisboa &amp; Sons</p><table><tr><td>Ann Lee</td><td>Glass Ltd</td></tr></table><![if !vml]>seen<![endif]></body>"
)


def test_html_is_read_as_a_reader_sees_it() -> None:
    """Only the tags were taken out: `Ann LeeGlass Ltd`, `Caf&eacute;`, and what only Office sees."""
    assert body(in_html(PAGE)) == "Offer\nCafé Lisboa & Sons\nAnn Lee | Glass Ltd\nseen"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (in_html("<p>Привет, Иван</p>", "cp1251", "; charset=windows-1251"), "Привет, Иван"),
        (in_html("<meta charset=iso-8859-2><p>Łódź</p>", "iso-8859-2", ""), "Łódź"),
        (b"Content-Type: text/plain; charset=iso-2022-jp\n\n" + "会議は東京で".encode("iso-2022-jp"), "会議は東京で"),
        (b"\n" + "Müller, café".encode("cp1252"), "Müller, café"),
        (b"Content-Type: text/plain; charset=x-none\nContent-Transfer-Encoding: base64\n\nw4FnbmVz", "Ágnes"),
        (b"Content-Type: text/plain; name=note.txt\n\nA mail that is one file.", "A mail that is one file."),
        (b"Content-Type: multipart/mixed; boundary=x\n\nNo part begins.", "No part begins."),
    ],
)
def test_the_text_of_one_part(content: bytes, text: str) -> None:
    assert body(content) == text


INVITATION = b"Content-Type: text/calendar; method=REQUEST\n\nBEGIN:VCALENDAR\nSUMMARY:a b c d e f g h i j k l m n o\n"
INNER = b"Content-Type: message/rfc822\n\nSubject: inner\n\nInner body."
FILE = b"Content-Type: text/plain\nContent-Disposition: attachment; filename=a.txt\n\nIn the file."
SAID = "The offer stands, says Ann Lee."
PLAIN = f"Content-Type: text/plain\n\n{SAID}".encode()
BINARY = b"Content-Type: text/plain\n\n" + b"\0\1\2" * 99


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (parts("alternative", PLAIN, in_html("<p>The offer stands, says <b>Ann Lee</b>.")), SAID),
        (parts("alternative", SHORT, in_html(f"<p>{'The offer stands. ' * 5}")), ("The offer stands. " * 5).strip()),
        (parts("alternative", b"\n \n", in_html("<p>Hello")), "Hello"),
        (parts("alternative", PLAIN, INVITATION), SAID),
        (parts("mixed", PLAIN, in_html("<p>And more."), b"\nA footer."), f"{SAID}\n\nAnd more.\n\nA footer."),
        (parts("mixed", parts("alternative", SHORT, in_html("<p>Hi")), FILE), "Please view this in HTML."),
        (parts("mixed", PLAIN, INNER, FILE, BINARY), SAID),
    ],
    ids=["both", "a stub", "blank", "an invitation", "one after another", "in one another", "what is attached"],
)
def test_the_text_of_several_parts(content: bytes, text: str) -> None:
    """The body of a forwarded mail stood in the mail that forwards it, too, and was counted twice."""
    assert body(content) == text


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ("=?x-none?B?w4FnbmVz?= Bell", "Ágnes Bell"),
        ("=?utf-8?B?a?=", "=?utf-8?B?a?="),
        ("=?utf-8?q?Jos=C3=A9?= =?utf-8?q?_Carreras?=", "José Carreras"),
        ("Ágnes =?utf-8?q?Jos=C3=A9?=", "Ágnes José"),
        ("=?utf-8?q?=00=01=02=03=04=05=06?= Bell", "\0\1\2\3\4\5\6 Bell"),
        ("Müller".encode("cp1252").decode("ascii", "surrogateescape"), "Müller"),
    ],
)
def test_a_header_is_read_as_it_was_meant(header: str, text: str) -> None:
    assert decoded(header) == text


@pytest.mark.parametrize("data", [b"Ann Lee wrote a text.", b"%PDF-1.7\n1 0 obj"])
def test_what_is_no_mail_is_refused(data: bytes) -> None:
    with pytest.raises(RejectedError, match="not a mail, it has no headers"):
        mail_text(data)


def test_parts_in_one_another_without_end_are_refused_or_read() -> None:
    deep = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (n, n) for n in range(5000))
    with pytest.raises(RejectedError, match="not a mail that can be read"):
        mail_text(deep + b"\nAnn Lee.")
