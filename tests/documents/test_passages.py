"""What was said is read from JSON, whole and with who said it, whatever program wrote it."""

import json
from typing import Any

import pytest

from ec1.documents.ledger import DocumentKey
from ec1.documents.parse import Document, parse_document
from ec1.errors import RejectedError

SAID = "Ask Tom Bell."
SENTENCES = [
    {"sentence": "Good morning.", "startTime": "00:01", "speaker_name": "Ann Lee", "speaker_id": 0},
    {"sentence": SAID, "startTime": "00:04", "speaker_name": "Bo Ek", "speaker_id": 1},
]
SPOKEN = "Ann Lee: Good morning.\n\nBo Ek: Ask Tom Bell."


def read(value: Any) -> Document:
    return parse_document(DocumentKey("all", "export.json"), json.dumps(value).encode())


def member(name: str, **more: str) -> dict[str, str]:
    return {"id": "5", **more, "name": name}


@pytest.mark.parametrize(
    "export",
    [
        pytest.param(SENTENCES, id="a list of sentences"),
        pytest.param({"id": "x1", "sentences": SENTENCES}, id="sentences"),
        pytest.param(
            {
                "segments": [
                    {"start": 0.1, "end": 1.5, "text": " Good morning.", "speaker": "Ann Lee", "words": []},
                    {"start": 2, "text": " Ask Tom Bell.", "speaker": "Bo Ek", "words": [{"word": "Ask", "score": 1}]},
                ],
                "word_segments": [{"word": "Good", "start": 0.1}, {"word": "Müller", "start": 0.2}],
            },
            id="segments",
        ),
        pytest.param(
            {
                "type": "private_group",
                "messages": [
                    {
                        "id": 1,
                        "date": "2026-05-01T10:00:00",
                        "from": "Ann Lee",
                        "from_id": "user1",
                        "text": "Good morning.",
                    },
                    {"id": 2, "from": "Ann Lee", "text": "", "photo": "photos/1.jpg"},
                    {"id": 3, "from": "Bo Ek", "text": ["Ask ", {"type": "mention", "text": "Tom Bell"}, "."]},
                ],
            },
            id="messages of parts",
        ),
        pytest.param(
            {
                "messages": [
                    {"id": "1", "content": "Good morning.", "author": member("ann", nickname="Ann Lee"), "embeds": []},
                    {"id": "2", "content": SAID, "author": member("Bo Ek"), "reactions": [{"emoji": {"name": "x"}}]},
                ]
            },
            id="messages with authors",
        ),
        pytest.param(
            {
                "value": [
                    {"from": {"user": {"displayName": "Ann Lee"}}, "body": {"content": "<p>Good <b>morning</b>.</p>"}},
                    {"from": {"user": {"displayName": "Bo Ek"}}, "body": {"content": "<div>Ask Tom&nbsp;Bell.</div>"}},
                ]
            },
            id="messages in HTML",
        ),
        pytest.param(
            {
                "messages": [
                    {
                        "creator": {"name": "Ann Lee", "email": "ann@example.org"},
                        "created_date": "Friday, May 1, 2026 at 10:00:00 AM UTC",
                        "text": "Good morning.",
                    },
                    {"creator": {"name": "Bo Ek"}, "created_date": "Friday, May 1, 2026 at 10:01:00 AM", "text": SAID},
                ]
            },
            id="messages with long dates",
        ),
        pytest.param(
            [
                {"participant": {"id": 1, "name": "Ann Lee"}, "words": [{"text": "Good"}, {"text": "morning."}]},
                {"participant": {"id": 2, "name": "Bo Ek"}, "words": [{"text": each} for each in SAID.split()]},
            ],
            id="turns of words",
        ),
        pytest.param(
            {"log": {"entries": [{"who": "Ann Lee", "line": "Good morning."}, {"who": "Bo Ek", "line": SAID}]}},
            id="no usual key",
        ),
    ],
)
def test_what_was_said_is_read_with_who_said_it_however_short(export: Any) -> None:
    assert read(export).text.replace("\xa0", " ") == SPOKEN


def test_the_name_of_a_chat_is_no_persons() -> None:
    said = [
        {"from": "Ann Lee", "text": "See below."},
        {"actor": "Ann Lee", "action": "join_group"},
    ]
    assert read({"name": "Dispatch", "messages": said}).text.startswith("title: Dispatch\n\nAnn Lee: See below.")
    records = [{"name": "Bo Ek", "text": "He left in May."}]
    assert read({"name": "Ann Lee", "contacts": records}).text.startswith("name: Ann Lee\ncontacts: Bo Ek")


def test_a_line_of_an_export_is_read_however_short() -> None:
    assert read({"from": "Ann Lee", "content": "Ask Tom."}).text == "Ann Lee: Ask Tom."


def test_what_one_speaker_says_one_after_another_is_one_turn() -> None:
    said = [
        {"speaker": name, "text": text} for name, text in (("A", "Yes it is."), ("A", "Go on."), ("B", "Well then."))
    ]
    assert read({"turns": said}).text == "A: Yes it is. Go on.\n\nB: Well then."
    long = read({"turns": [{"speaker": 0, "text": f"Sentence number {number}."} for number in range(40)]}).text
    turns = long.split("\n\n")
    assert len(turns) > 1 and all(turn.startswith("Speaker 0: Sentence") and len(turn) < 400 for turn in turns)
    assert [int(word[:-1]) for word in long.split() if word[:-1].isdigit() and word.endswith(".")] == list(range(40))


def test_nothing_else_of_a_turn_is_lost() -> None:
    attachment = "The attached report says that Dana Fox left Lyon in May."
    said = [
        {"from": "Ann Lee", "text": "See below.", "attachments": [{"description": attachment}], "subject": "Lyon"},
        {"from": "Ann Lee", "text": "Bye now.", "text_entities": [{"type": "plain", "text": "Bye now."}]},
        f"{attachment} It is signed.",
    ]
    assert read({"messages": said}).text.split("\n\n") == [
        "Ann Lee: See below.",
        "subject: Lyon",
        attachment,
        "Ann Lee: Bye now.",
        f"{attachment} It is signed.",
    ]


def test_short_words_under_another_usual_key_are_not_lost() -> None:
    commits = [{"author": "Ann Lee", "message": "Fix the parser", "body": "Seen by Tom Bell.", "sha": "ab12"}]
    assert read({"commits": commits}).text.split("\n\n") == ["Ann Lee: Fix the parser", "Seen by Tom Bell."]


def test_prose_of_records_in_a_list_is_read() -> None:
    """It counted as a field of the record, and only the record's own fields are written as lines."""
    notes = "Dana Fox of Northwind asked for the report by Friday."
    assert notes in read({"data": {"items": [{"id": "1", "notes": notes}]}}).text


@pytest.mark.parametrize(
    "records",
    [
        [{"name": "Ann Lee", "company": "Northwind", "text": "She asked for it twice."}],
        [{"title": "Login fails", "body": "It does so since May.", "author": "Ann Lee"}],
        [{"name": "Ann Lee", "role": "sales manager"}, {"name": "Bo Ek", "role": "head of sales"}],
        [{"text": "A sentence of nobody."}],
        ["Ann Lee: Good morning."],
        [],
    ],
)
def test_a_list_of_records_that_are_documents_each_is_none_itself(records: list[Any]) -> None:
    with pytest.raises(RejectedError, match="neither a JSON object nor a list"):
        read(records)


def test_labels_and_words_are_not_what_was_said() -> None:
    tasks = [{"owner": "Ann Lee", "status": "In progress"}, {"owner": "Bo Ek", "status": "In progress"}]
    words = [{"speaker": "A", "text": word} for word in ("Herr", "Müller", "東京")]
    assert read({"tasks": tasks * 2, "words": words}).text == "\n\n".join(
        ["owner: Ann Lee\nstatus: In progress", "owner: Bo Ek", "owner: Ann Lee", "owner: Bo Ek"]
    ), "a label once, names each time, a word of a text as none of its own"


def test_writing_without_blanks_is_read() -> None:
    said = [("田中", "明日東京に行きます。"), ("鈴木", "はい。"), ("田中", "誰と?"), ("鈴木", "佐藤さんとです。")]
    turns = [{"speaker": name, "text": text} for name, text in said]
    assert read(turns).text.split("\n\n") == [f"{name}: {text}" for name, text in said]


def test_a_text_of_its_own_is_the_text() -> None:
    assert read({"text": SPOKEN, "segments": SENTENCES}).text == SPOKEN
    whole = f"Good morning. {SAID}"
    assert read({"text": whole, "segments": SENTENCES}).text == whole


def test_what_stands_beside_a_text_is_read_too() -> None:
    ticket = {
        "title": "Login fails",
        "body": "It does so since May.",
        "requester": {"displayName": "Cy Fox", "id": 7},
        "comments": [{"author": "Bo Ek", "body": "Works for me."}],
        "history": [{"changedBy": {"displayName": "Di Roe"}, "to": "Done"}],
    }
    assert read(ticket).text == (
        "title: Login fails\n\nIt does so since May.\n\nrequester display name: Cy Fox\n\nBo Ek: Works for me.\n\n"
        "changed by display name: Di Roe\nto: Done"
    )


def test_records_in_front_matter_are_read() -> None:
    text = (
        b"---\ntitle: Weekly\nactions:\n- owner: Ann Lee\n  task: Send the offer\nmeeting: {taker: {name: Di Roe}}\n"
        b"attendees:\n- {name: Eve Ng, role: Head of sales}\n---\nWe met."
    )
    assert parse_document(DocumentKey("notes", "weekly.md"), text).text == (
        "attendees: Eve Ng\n\ntitle: Weekly\n\nAnn Lee: Send the offer\n\ntaker name: Di Roe\n\n"
        "role: Head of sales\n\nWe met."
    )


def test_long_fields_of_front_matter_are_read() -> None:
    """A list of attendees in one string of more than 200 characters was left out, and a summary of more than 2,000."""
    attendees = ", ".join(f"Ann Lee{chr(97 + number)}a" for number in range(26))
    summary = "Bo Ek spoke. " * 200
    text = f"---\nattendees: {attendees}\nsummary: {summary}\n---\nWe met."
    assert parse_document(DocumentKey("notes", "weekly.md"), text.encode()).text == (
        f"attendees: {attendees}\n\n{summary.strip()}\n\nWe met."
    )
    assert f"attendees: {attendees}\n" in read({"meeting": {"attendees": attendees}, "text": "We met."}).text


def test_a_list_of_many_names_is_read_to_its_end() -> None:
    names = [f"Ann Lee{chr(97 + number // 26)}{chr(97 + number % 26)}a" for number in range(300)]
    said = f"attendees: {'; '.join(names)}"
    assert read({"attendees": names}).text == said
    note = "\n".join(["---", "attendees:", *(f"- {name}" for name in names), "---", "Hi."])
    assert parse_document(DocumentKey("notes", "a.md"), note.encode()).text == f"{said}\n\nHi."


def test_short_strings_in_records_at_any_depth_are_lines() -> None:
    board = {
        "cards": [{"name": "Call Ann Lee", "labels": ["Key account", "x1"]}, {"name": "Visit Riga", "url": "/a"}],
        "team": {"lead": {"firstName": "Bo", "lastName": "Ek"}, "backend": ["Cy Fox", "Di Roe"]},
    }
    assert read(board).text == (
        "name: Call Ann Lee\nlabels: Key account\n\nname: Visit Riga\n\nlead name: Bo Ek\nteam backend: Cy Fox; Di Roe"
    )
