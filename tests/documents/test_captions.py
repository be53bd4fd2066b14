"""What was said in a meeting, as the programs that record it write it down."""

import pytest
import written

from ec1.documents.captions import turns
from ec1.documents.ledger import DocumentKey
from ec1.documents.parse import parse_document
from ec1.errors import RejectedError


def test_who_said_what_and_when() -> None:
    said = [("Ann Lee", "Good morning, it is"), ("Ann Lee", "Tuesday & early."), ("José Ng", "Riga called.")]
    document = parse_document(DocumentKey("meeting", "a.vtt"), written.captions(*said, ("Ann Lee", "When?")))
    assert document.text == ("Ann Lee: Good morning, it is Tuesday & early.\n\nJosé Ng: Riga called.\n\nAnn Lee: When?")
    assert document.place_at(document.text.index("Riga")) == "00:00:20"


def cues(*texts: str) -> bytes:
    numbered = (f"{at}\n00:00:0{at}.000 --> 00:00:0{at}.900\n{text}\n\n" for at, text in enumerate(texts))
    return ("WEBVTT\n\nNOTE of a program\n\n" + "".join(numbered)).encode()


def test_a_name_before_the_words_is_said_once_a_turn() -> None:
    data = cues("Ann Lee: We met", "Ann Lee: in Riga.", "Bo Ek: And?", "so on")
    assert turns(data, "vtt") == [["00:00:00", "Ann Lee: We met in Riga."], ["00:00:02", "Bo Ek: And? so on"]]


def test_nothing_is_put_into_a_mouth() -> None:
    assert turns(cues("Note: three things", "first, Riga"), "vtt") == [["00:00:00", "Note: three things first, Riga"]]
    # Who says the second is not said.
    assert [said for _, said in turns(cues("<v Ann Lee>Yes</v>", "No"), "vtt")] == ["Ann Lee: Yes", "No"]
    two = cues("<v Ann Lee>Yes</v>\n<v.loud Bo Ek>No</v>")
    assert [said for _, said in turns(two, "vtt")] == ["Ann Lee: Yes", "Bo Ek: No"]


def test_captions_that_roll_are_read_once() -> None:
    data = cues(" \nhello<00:00:00.500><c> all</c>", "hello all\n ", "hello all\nof you", "of you\nhere")
    assert turns(data, "vtt") == [["00:00:00", "hello all of you here"]]


def test_a_long_turn_has_more_times_than_one() -> None:
    said = [("Ann Lee", f"Sentence number {number} of the speech ends here.") for number in range(30)]
    found = turns(written.captions(*said), "vtt")
    assert 3 < len(found) < 10
    assert all(text.startswith("Ann Lee: Sentence") and text.endswith("here.") for _, text in found)
    endless = turns(written.captions(*[("Ann Lee", "and so we went on")] * 600), "vtt")
    assert all(len(text) < 3100 for _, text in endless)


def test_subrip() -> None:
    data = "1\r\n00:00:02,000 --> 00:00:05,000\r\n<i>Grüße</i> aus M&M\r\n".encode("latin-1")
    assert turns(data, "srt") == [["00:00:02", "Grüße aus M&M"]]


@pytest.mark.parametrize("kind", ["vtt", "srt"])
@pytest.mark.parametrize("data", [b"Ann Lee met Bo.", b"\xff\x00\x01" * 9])
def test_what_is_no_captions_is_rejected(data: bytes, kind: str) -> None:
    with pytest.raises(RejectedError):
        parse_document(DocumentKey("meeting", f"a.{kind}"), data)


def test_captions_without_a_word_are_no_document() -> None:
    with pytest.raises(RejectedError, match="no text"):
        parse_document(DocumentKey("meeting", "a.vtt"), b"WEBVTT\n")
