"""Documents that are not files in a folder: in buckets, repositories, mailboxes, exports, archives and mails."""

import datetime as dt
import errno
import json
import os
import re
import signal
import subprocess
import zipfile
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
import written
from gcs_emulator import bucket, gcs_server
from outlook import mail_with
from s3_server import s3_bucket, s3_server

from ec1.deployment import Deployment
from ec1.documents.ledger import DocumentKey, Fingerprints, LedgerEntry, Status
from ec1.documents.listing import Listing
from ec1.documents.sources.copies import Copies
from ec1.documents.sources.opened import Opener, TooSlowError
from ec1.documents.sources.source import Item, place, places
from ec1.errors import DeferredError, RejectedError
from ec1.extraction.reading.outbox import Outbox
from ec1.home import Home
from ec1.night.steps.listing import list_documents
from ec1.storage.gcs import GcsStore
from ec1.storage.s3 import S3Store

__all__ = ["bucket", "gcs_server", "s3_bucket", "s3_server"]

NOW = dt.datetime(2126, 6, 1, 12, tzinfo=dt.UTC)
TEXT = b"Ruth Haldane of Baltic Timber met Jos\xc3\xa9 Carreras in Riga."


class Night:
    """A home with a deployment of these streams, and a ledger that follows what each night would do."""

    def __init__(self, folder: Path, streams: dict[str, object], **documents: object) -> None:
        self.home = Home(folder / "home")
        self.root = folder / "share"
        self.root.mkdir(exist_ok=True)
        self.ledger: dict[DocumentKey, LedgerEntry] = {}
        self.deployment = Deployment.model_validate(
            {
                "name": "acme",
                "tenant": "acme",
                "documents": {"root": self.root, "streams": streams, **documents},
                "recipes": (),
                "inference": {"kind": "vllm", "model": "m", "max_model_len": 4096},
            }
        )

    def run(self) -> Listing:
        """What a night finds; its documents then count."""
        streams = self.deployment.documents.all_streams
        found, _ = list_documents(
            self.deployment,
            self.home,
            self.ledger,
            Fingerprints(dict.fromkeys(streams, "f")),
            Outbox(self.home.outbox),
            self.deployment.night("2126-06-01"),
            as_of=NOW,
            now=NOW,
        )
        for each in found.changed:
            row = LedgerEntry(each.key, each.document_id, each.content_sha256, "f", Status.APPLIED, found.night)
            self.ledger[each.key] = row
        for item in found.rejected:
            self.ledger[item.key] = LedgerEntry(
                item.key, "", item.content_sha256, "f", Status.REJECTED, found.night, item.reason
            )
        for key in found.vanished:
            del self.ledger[key]
        return found

    def paths(self) -> list[str]:
        """What a night newly finds, by path."""
        return [each.key.path for each in self.run().changed]

    def text(self, path: str) -> str:
        """A document as it is read."""
        key = next(key for key in self.ledger if key.path == path)
        return self.deployment.document_reader(self.home).read(key, self.ledger[key].content_sha256).text


def nothing_new(found: Listing) -> bool:
    return not (found.changed or found.vanished or found.rejected or found.put_off)


@pytest.fixture(params=["gcs", "s3"])
def store(request: pytest.FixtureRequest) -> Iterator[tuple[dict[str, object], GcsStore | S3Store]]:
    """A real server's bucket, as settings and as a client."""
    if request.param == "gcs":
        server, name = request.getfixturevalue("gcs_server").url, request.getfixturevalue("bucket")
        yield {"kind": "gcs", "bucket": name, "endpoint": server}, GcsStore(name, server, retry_seconds=5)
    else:
        server, name = request.getfixturevalue("s3_server"), request.getfixturevalue("s3_bucket")
        yield {"kind": "s3", "bucket": name, "endpoint": server}, S3Store(name, server, retry_seconds=5)


def test_a_bucket_is_read_and_what_is_unchanged_is_not_downloaded_again(
    store: tuple[dict[str, object], GcsStore | S3Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, client = store
    for name in ("2026/a.pdf", "2026/b.docx", "c.txt", "song.mp3"):
        client.put_bytes(f"contracts/{name}", written.EACH.get(f"a{Path(name).suffix}", b"x"))
    client.put_bytes("elsewhere/d.txt", TEXT)
    source = {"kind": "store", "store": settings, "prefix": "contracts"}
    night = Night(tmp_path, {"contracts": {"source": source}})
    assert night.paths() == ["contracts/2026/a.pdf", "contracts/2026/b.docx", "contracts/c.txt"]
    assert "Ruth Haldane" in night.text("contracts/2026/a.pdf")

    fetched: list[str] = []
    plain = type(client).get_bytes

    def counted(self: Any, key: str) -> bytes:
        fetched.append(key)
        return plain(self, key)

    monkeypatch.setattr(type(client), "get_bytes", counted)
    assert nothing_new(night.run())
    assert not fetched

    client.put_bytes("contracts/c.txt", TEXT + b" Again.")
    client.put_bytes("contracts/new.txt", TEXT)
    assert night.paths() == ["contracts/c.txt", "contracts/new.txt"]
    assert sorted(fetched) == ["contracts/c.txt", "contracts/new.txt"]

    client.delete("contracts/new.txt")
    assert night.run().vanished == (DocumentKey("contracts", "contracts/new.txt"),)


def test_a_store_that_cannot_be_reached_is_not_an_empty_one(
    s3_server: str, s3_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = S3Store(s3_bucket, s3_server)
    for number in range(12):
        client.put_bytes(f"{number}.txt", TEXT + str(number).encode())
    (tmp_path / "share/notes").mkdir(parents=True)
    (tmp_path / "share/notes/a.txt").write_bytes(TEXT)
    source = {"kind": "store", "store": {"kind": "s3", "bucket": s3_bucket, "endpoint": s3_server}}
    night = Night(tmp_path, {"bucket": {"source": source}, "notes": {"folder": "notes"}})
    assert len(night.paths()) == 13

    def cut_off(self: S3Store, prefix: str) -> Iterator[object]:
        yield from list(plain(self, prefix))[:3]
        S3Store("b", "http://127.0.0.1:9", retry_seconds=1).get_bytes("a")

    plain = S3Store.list
    monkeypatch.setattr(S3Store, "list", cut_off)
    (night.root / "notes/b.txt").write_bytes(TEXT + b"!")
    found = night.run()
    assert [each.key.path for each in found.changed] == ["notes/b.txt"], "the other streams are read"
    assert not found.vanished
    assert "cannot be reached" in found.put_off["bucket"]
    monkeypatch.undo()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")

    for number in range(12):
        client.delete(f"{number}.txt")
    found = night.run()
    assert not found.vanished
    assert "12 of 12 known documents are gone from its source" in found.put_off["bucket"]
    assert len(list((night.home.sources / "bucket").rglob("*.txt"))) == 12, "nothing is removed that is not believed"


def test_copies_that_are_lost_are_made_again(tmp_path: Path) -> None:
    repository = _repository(tmp_path, {"book/a.md": TEXT, "book/b.txt": TEXT + b"!"})
    night = Night(tmp_path, {"book": {"source": {"kind": "git", "repository": repository}}})
    assert night.paths() == ["book/book/a.md", "book/book/b.txt"]
    subprocess.run(["rm", "-rf", night.home.cache], check=True)
    assert nothing_new(night.run())
    (night.home.sources / "book/copies/.copies.sqlite").write_bytes(b"not a database" * 100)
    assert nothing_new(night.run())


def _repository(folder: Path, files: dict[str, bytes]) -> Path:
    path = folder / "repository"
    _git(folder, "init", "-q", "-b", "main", os.fspath(path))
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    _commit(path)
    return path


def _commit(path: Path) -> None:
    _git(path, "add", "-A")
    _git(path, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", "more")


def _git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True)


def test_a_repository_is_read_at_a_revision(tmp_path: Path) -> None:
    large = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    repository = _repository(tmp_path, {"book/a.md": TEXT, "book/plan.pdf": large, "src/x.py": b"x", "README.md": TEXT})
    (repository / "book/link.md").symlink_to("/etc/passwd")
    _commit(repository)
    _git(repository, "branch", "release")
    source = {"kind": "git", "repository": repository, "revision": "release", "folder": "book"}
    night = Night(tmp_path, {"book": {"source": source}})
    found = night.run()
    assert [each.key.path for each in found.changed] == ["book/a.md"]
    assert [(each.key.path, each.reason) for each in found.rejected] == [
        ("book/plan.pdf", "kept by Git LFS: its content is not in the repository")
    ]
    assert nothing_new(night.run()), "and what cannot be read is said once"
    (repository / "book/a.md").write_bytes(b"changed")
    _commit(repository)
    assert nothing_new(night.run()), "the branch stands where it stood"
    _git(repository, "branch", "-f", "release", "main")
    assert night.paths() == ["book/a.md"]
    _git(repository, "branch", "-D", "release")
    assert "cannot be read at release" in night.run().put_off["book"]


def test_a_maildir_is_read_and_flags_change_nothing(tmp_path: Path) -> None:
    for folder in ("mail/cur", "mail/new", "mail/.Archive.2024/cur"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "mail/new/1.M1P1.host").write_bytes(written.mail("One", TEXT.decode()))
    (tmp_path / "mail/.Archive.2024/cur/2.M2P2.host:2,S").write_bytes(written.mail("Two", "Body of Two."))
    night = Night(tmp_path, {"mail": {"source": {"kind": "maildir", "path": tmp_path / "mail"}}})
    attached = ["mail/1.M1P1.host.eml", "mail/1.M1P1.host.eml/a.pdf"]
    archived = ["mail/Archive/2024/2.M2P2.host.eml", "mail/Archive/2024/2.M2P2.host.eml/a.pdf"]
    assert night.paths() == [*attached, *archived]
    (tmp_path / "mail/new/1.M1P1.host").rename(tmp_path / "mail/cur/1.M1P1.host:2,RS")
    assert nothing_new(night.run())
    (tmp_path / "mail/cur").rename(tmp_path / "mail/gone")
    (tmp_path / "mail/new").rmdir()
    (tmp_path / "mail/.Archive.2024/cur").rename(tmp_path / "mail/gone2")
    assert "not a Maildir" in night.run().put_off["mail"]


@pytest.mark.parametrize("packed", [False, True])
def test_a_slack_export_becomes_a_document_for_each_day_of_a_channel(packed: bool, tmp_path: Path) -> None:
    users = [{"id": "U1", "name": "ruth", "profile": {"real_name": "Ruth Haldane"}}, {"id": "U2", "name": "jose"}]
    said = [
        {
            "type": "message",
            "user": "U1",
            "ts": "1767261600.0",
            "text": "Ask <@U2> at <https://x.org|Baltic Timber> &amp; co",
        },
        {"type": "message", "user": "U2", "ts": "broken", "text": "In <#C1|riga>."},
        {"type": "message", "text": 7},
        "not a message",
    ]
    files = {"users.json": users, "channels.json": [], "general/2026-01-01.json": said, "empty/2026-01-01.json": []}
    data = {name: json.dumps(value).encode() for name, value in files.items()}
    export = tmp_path / ("export.zip" if packed else "export")
    if packed:
        export.write_bytes(written.zipped(data))
    else:
        for name, value in data.items():
            (export / name).parent.mkdir(parents=True, exist_ok=True)
            (export / name).write_bytes(value)
    night = Night(tmp_path, {"chat": {"source": {"kind": "slack", "path": export}}})
    found = night.run()
    assert [each.key.path for each in found.changed] == ["chat/general/2026-01-01.md"]
    assert [each.reason for each in found.rejected] == ["nothing was said on this day"]
    assert night.text("chat/general/2026-01-01.md") == (
        "# general, 2026-01-01\n\nRuth Haldane, 10:00: Ask jose at Baltic Timber & co\n\njose: In riga."
    )
    assert nothing_new(night.run())


def test_what_programs_write_and_people_forward_in_slack_is_read(tmp_path: Path) -> None:
    """Their messages often have no text of their own."""
    users = [{"id": "U1", "name": "ruth", "profile": {"real_name": "Ruth Haldane"}}]
    typed = {
        "type": "rich_text",
        "elements": [{"type": "rich_text_section", "elements": [{"type": "text", "text": "See below."}]}],
    }
    section = [
        {"type": "text", "text": "ask "},
        {"type": "user", "user_id": "U1"},
        {"type": "text", "text": " in Riga"},
    ]
    said: list[dict[str, Any]] = [
        {
            "user": "U1",
            "text": "See below.",
            "blocks": [typed],
            "attachments": [
                {"author_name": "José Carreras", "text": "The <https://x.org|offer> &amp; more", "fallback": "-"}
            ],
        },
        {
            "username": "tickets",
            "text": "",
            "attachments": [
                {"pretext": "New ticket", "title": "Login fails", "fields": [{"title": "Owner", "value": "<@U1>"}]},
                {"fallback": "one more"},
                {"blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "of *Baltic Timber*"}}]},
            ],
        },
        {
            "username": "deploys",
            "text": "Deployed",
            "blocks": [
                {"type": "header", "text": {"type": "plain_text", "text": "Release 7"}},
                {"type": "section", "fields": [{"type": "mrkdwn", "text": "by <@U1>"}, 7]},
            ],
        },
        {
            "user": "U1",
            "text": "",
            "blocks": [{**typed, "elements": [{"type": "rich_text_section", "elements": section}]}],
        },
        {"user": "U1", "text": "", "blocks": [7], "attachments": "none", "files": []},
    ]
    messages = [{"type": "message", **each} for each in said]
    for name, value in {"users.json": users, "general/2026-01-01.json": messages}.items():
        (tmp_path / "export" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "export" / name).write_text(json.dumps(value))
    night = Night(tmp_path, {"chat": {"source": {"kind": "slack", "path": tmp_path / "export"}}})
    night.run()
    assert night.text("chat/general/2026-01-01.md").split("\n\n")[1:] == [
        "Ruth Haldane: See below.\nJosé Carreras\nThe offer & more",
        "tickets: New ticket\nLogin fails\nOwner: Ruth Haldane\none more\nof *Baltic Timber*",
        "deploys: Deployed\nRelease 7\nby Ruth Haldane",
        "Ruth Haldane: ask Ruth Haldane in Riga",
    ]


def test_archives_mailboxes_and_attachments_are_documents_of_their_own(tmp_path: Path) -> None:
    night = Night(tmp_path, {"all": {"folder": "."}}, max_vanished_share=0.5)
    inner = written.zipped({"deep/plan.pdf": written.pdf("Deep words.")})
    files = {"Page 1.md": TEXT, "more/inner.zip": inner, "song.mp3": b"x", ".hidden.md": b"x"}
    (night.root / "export.zip").write_bytes(written.zipped(files))
    (night.root / "one.eml").write_bytes(_mail_with_mail())
    (night.root / "box.mbox").write_bytes(
        b"".join(b"From a@b Thu Jan  1 00:00:00 2026\n" + _plain(n) for n in range(2))
    )
    found = night.run()
    assert not found.rejected
    paths = [each.key.path for each in found.changed]
    assert [path for path in paths if not path.startswith("box.mbox/")] == [
        "export.zip/Page 1.md",
        "export.zip/more/inner.zip~/deep/plan.pdf",
        "one.eml",
        "one.eml/part-3.eml",
        "one.eml/part-3.eml~/report.pdf",
    ]
    assert sum(path.startswith("box.mbox/") for path in paths) == 2
    assert night.text("export.zip/more/inner.zip~/deep/plan.pdf") == "Deep words."
    assert night.text("one.eml/part-3.eml~/report.pdf") == "The report itself."
    assert nothing_new(night.run())

    with (night.root / "box.mbox").open("ab") as box:
        box.write(b"From a@b Thu Jan  1 00:00:00 2026\n" + _plain(3))
    assert len(night.paths()) == 1, "of a mailbox that grew, what is new"
    (night.root / "one.eml").unlink()
    assert len(night.run().vanished) == 3
    subprocess.run(["rm", "-rf", night.home.unpacked], check=True)
    assert nothing_new(night.run()), "what was taken out and lost is taken out again"


def test_each_line_of_an_export_is_a_document_of_its_own(tmp_path: Path) -> None:
    night = Night(tmp_path, {"all": {"folder": "."}}, max_bytes=2000, max_vanished_share=0.5)
    said = "The mill at Alder Quay is closed until Ines Duarte has the new belt."
    lines = [
        b'\xef\xbb\xbf{"id": 1, "author": "Ann Lee", "message": "%s"}\r\n' % said.encode(),
        b'{"id": 2, "text": "Bo Wu called."}\n',
        b"\n",
        b'{"id": 2, "text": "Bo Wu called."}\n',
        b'{"id": 3, "text": "cut\n',
        b"[" + b"1," * 2000 + b"1]\n",
        b'{"id": 4, "name": "Ines Duarte", "employer": "Glass Ltd"}',
    ]
    export = night.root / "tickets.jsonl"
    export.write_bytes(b"".join(lines))
    found = night.run()
    texts, broken = [], []
    for each in found.changed:
        try:
            texts.append(night.text(each.key.path))
        except RejectedError as error:
            broken.append(str(error))
    assert sorted(texts) == ["Bo Wu called.", f"author: Ann Lee\n\n{said}", "name: Ines Duarte\nemployer: Glass Ltd"]
    assert len(broken) == 1 and broken[0].startswith("not JSON: ")
    (too_long,) = found.rejected
    assert "documents.max_bytes" in too_long.reason
    assert nothing_new(night.run())
    with export.open("ab") as file:
        file.write(b'\n{"id": 5, "text": "Cy Fox wrote."}\n')
    assert [night.text(path) for path in night.paths()] == ["Cy Fox wrote."], "of an export that grew, what is new"
    export.write_bytes(b"".join(lines[1:]))
    assert len(night.run().vanished) == 2


def test_each_contact_of_an_address_book_is_a_document_of_its_own(tmp_path: Path) -> None:
    night = Night(tmp_path, {"all": {"folder": "."}}, max_vanished_share=1)
    book = night.root / "contacts.vcf"
    ann = (
        "BEGIN:VCARD\r\nVERSION:3.0\r\nN:Lee;Ann;;Dr.;\r\nFN:Dr. Ann Lee\r\nORG:Glass\\, Sons & Co;Sales\r\n"
        "TITLE:Head of sales\r\nitem1.EMAIL;TYPE=WORK:ann@example.org\r\nTEL:+371 1\r\nTEL;TYPE=CELL:+371 2\r\n"
        "ADR:;;Quay 4;Riga;;LV-1;Latvia\r\nNOTE:Met at the mill\\nknows Bo\r\nBDAY:1980-02-03\r\n"
        "NICKNAME:Annie\r\nRELATED;TYPE=spouse:Cy Fox\r\nPHOTO;ENCODING=b:AAAA\r\nREV:20261101T000000Z\r\nEND:VCARD\r\n"
    )
    old = "BEGIN:VCARD\nVERSION:2.1\nN;ENCODING=QUOTED-PRINTABLE;CHARSET=UTF-8:M=C3=BCller;J=C3=B6rg\nEND:VCARD\n"
    new = (
        "BEGIN:VCARD\nVERSION:4.0\nKIND:Org\nFN:Baltic Timber\nORG:Baltic Timber;\nORG:\nTEL;VALUE=uri:tel:+371-3\n"
        "no property\nEND:VCARD\n"
    )
    book.write_text(ann + old + new + ann)
    assert sorted(map(night.text, night.paths())) == [
        "name: Dr. Ann Lee\norganization: Glass, Sons & Co\nemail: ann@example.org\nphone: +371 1; +371 2\n"
        "birth date: 1980-02-03\nstreet: Quay 4\ncity: Riga\npostcode: LV-1\n\n"
        "about: Head of sales\nnote: Met at the mill knows Bo\n\nnickname: Annie\nrelated: Cy Fox\n\n"
        "address country: Latvia",
        "name: Jörg Müller",
        "organization: Baltic Timber\nphone: +371-3",
    ]
    book.write_text(ann.replace("REV:2026", "REV:2027") + old + new)
    found = night.run()
    assert (len(found.changed), len(found.vanished)) == (0, 0), "a time of change changes nobody"
    book.write_text(ann.replace("END:VCARD\r\n", "") + old)
    (broken,) = night.run().rejected
    assert "not an address book that can be read" in broken.reason


def test_each_event_of_a_calendar_is_a_document_of_its_own(tmp_path: Path) -> None:
    night = Night(tmp_path, {"all": {"folder": "."}}, max_vanished_share=1)
    event = (
        "BEGIN:VEVENT\r\nUID:1\r\nDTSTART;TZID=Nowhere/At all:20260501T100000\r\nSUMMARY:Sales review\\, May\r\n"
        'LOCATION:Quay 4\\, Riga\r\nORGANIZER;CN="Lee, Ann":mailto:ann@example.org\r\n'
        "ATTENDEE;CN=Bo Wu;ROLE=CHAIR:MAILTO:bo@example.org\r\nATTENDEE;CUTYPE=ROOM;CN=Blue Room:mailto:r@x.org\r\n"
        "ATTENDEE;CN=cy@example.org:mailto:cy@example.org\r\nDESCRIPTION:Offer to Fox & Co\r\n mpany\\nMore\r\n"
        "BEGIN:VALARM\r\nTRIGGER:-PT15M\r\nDESCRIPTION:Reminder\r\nEND:VALARM\r\nEND:VEVENT\r\n"
    )
    task = "BEGIN:VTODO\r\nUID:2\r\nSUMMARY:Call Di Roe\r\nDUE;VALUE=DATE:20260502\r\nEND:VTODO\r\n"
    whole = f"BEGIN:VCALENDAR\r\nVERSION:2.0\r\n{event}{task}END:VCALENDAR\r\n"
    (night.root / "own.ics").write_bytes(whole.encode())
    assert sorted(map(night.text, night.paths())) == [
        "host: Ann Lee <ann@example.org>\nattendees: Bo Wu <bo@example.org>; cy@example.org\n\n"
        "title: Sales review, May\n\nwhere: Quay 4, Riga\n\nOffer to Fox & Company\nMore",
        "title: Call Di Roe",
    ]
    (night.root / "own.ics").write_bytes(whole.replace("END:VCALENDAR", "").encode())
    (broken,) = night.run().rejected
    assert "not a calendar that can be read" in broken.reason


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        (
            "google.csv",
            "First Name,Last Name,Organization Name,E-mail 1 - Label,E-mail 1 - Value,Address 1 - City,\n"
            'Ann,Lee,"Glass, Sons & Co",* Work,ann@example.org,Riga,met at the mill\n\nBo,Wu,,,,,,too far\n',
            [
                "name: Ann Lee\norganization name: Glass, Sons & Co\ne mail: ann@example.org\ncity: Riga\n\n"
                "other: met at the mill",
                "name: Bo Wu\n\nother: too far",
            ],
        ),
        (
            "connections.tsv",
            'Title\tSales review\n"Some\nare missing."\n\nName\tUser Email\tRole\n'
            "Ann Lee\tann@example.org\tHead of sales\n\n3. Joined\nName\tUser Email\n",
            [
                "Title Sales review\nSome\nare missing.",
                "name: Ann Lee\nuser email: ann@example.org\n\nrole: Head of sales",
                "other: 3. Joined",
            ],
        ),
        (
            "crm.JSON",
            '\ufeff [{"fullName": "Ann Lee", "companyName": "Glass Ltd"}, {"id": 7, "note": "Bo Wu called about it."}]',
            ["full name: Ann Lee\ncompany name: Glass Ltd", "note: Bo Wu called about it."],
        ),
    ],
)
def test_each_record_of_a_list_is_a_document_of_its_own(
    name: str, content: str, texts: list[str], tmp_path: Path
) -> None:
    night = Night(tmp_path, {"all": {"folder": "."}}, max_vanished_share=1)
    (night.root / name).write_text(content, encoding="utf-8")
    with zipfile.ZipFile(night.root / "old.zip", "w") as archive:
        archive.writestr(name, content.encode("utf-16"))
    found = sorted(night.text(path) for path in night.paths() if path.startswith(name))
    assert found == texts
    assert len(night.ledger) == 2 * len(texts), "in an archive, too, and the list itself is none"
    assert nothing_new(night.run())
    (night.root / name).write_text('{"text": "One record now."}' if name.endswith("JSON") else "One,text\nnow,too\n")
    again = night.run()
    assert ([each.key.path for each in again.changed], len(again.vanished)) == ([name], len(texts))
    (night.root / name).write_text(content, encoding="utf-8")
    again = night.run()
    assert ([key.path for key in again.vanished], len(again.changed)) == ([name], len(texts))
    (night.root / name).write_text(content[:-3] + "," if name.endswith("JSON") else content + '"' + "x" * 200_000)
    (broken,) = night.run().rejected
    assert broken.key.path == name and re.search("not JSON: |not a table that can be read: ", broken.reason)


def test_a_list_of_short_notes_is_a_list(tmp_path: Path) -> None:
    night = Night(tmp_path, {"all": {"folder": "."}})
    (night.root / "notes.json").write_text('[{"note": "Bo Wu called."}, {"note": "Ann Lee wrote."}]')
    assert sorted(map(night.text, night.paths())) == ["note: Ann Lee wrote.", "note: Bo Wu called."]


def test_a_document_that_becomes_a_list_is_not_taken_for_lost(tmp_path: Path) -> None:
    """After an upgrade, too: a night ended with "this looks like a lost mount" where tables were most of the files."""
    night = Night(tmp_path, {"all": {"folder": "."}})
    (night.root / "people.csv").write_text("One,text\n")
    assert night.paths() == ["people.csv"]
    (night.root / "people.csv").write_text("First name,Last name\nAnn,Lee\n")
    found = night.run()
    assert ([key.path for key in found.vanished], len(found.changed)) == (["people.csv"], 1)


def test_a_list_that_cannot_be_read_now_keeps_its_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    night = Night(tmp_path, {"all": {"folder": "."}}, max_vanished_share=1)
    (night.root / "people.csv").write_text("First name,Last name\nAnn,Lee\n")
    assert len(night.paths()) == 1

    def broken(path: Path) -> bool:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("ec1.documents.sources.unpack.is_list", broken)
    assert not night.run().vanished


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("prices.csv", "name,price\nAnn Lee,3\n"),
        ("chat.json", '[{"speaker": "Ann Lee", "text": "Good morning."}, {"speaker": "Bo Wu", "text": "Hi there."}]'),
        ("words.json", '{"text": "Ann Lee, [{}]"}'),
    ],
)
def test_a_table_of_other_things_and_a_conversation_are_one_document(name: str, content: str, tmp_path: Path) -> None:
    night = Night(tmp_path, {"all": {"folder": "."}}, max_vanished_share=1)
    (night.root / name).write_text(content)
    assert night.paths() == [name] and "Ann Lee" in night.text(name)


def test_a_list_is_a_document_where_a_stream_reads_no_records(tmp_path: Path) -> None:
    night = Night(tmp_path, {"all": {"folder": ".", "suffixes": [".csv"]}})
    (night.root / "people.csv").write_text("First name,Last name\nAnn,Lee\n")
    assert night.paths() == ["people.csv"]


def test_what_is_attached_to_an_outlook_mail_is_read(tmp_path: Path) -> None:
    night = Night(tmp_path, {"all": {"folder": "."}})
    mail = mail_with({"..\\minutes.txt": b"Ann Lee wrote.", "": b"no name, so of no kind", "logo.png": b"x"})
    (night.root / "a.msg").write_bytes(mail)
    (night.root / "torn.msg").write_bytes(mail[:1600])
    assert [path for path in night.paths() if "/" in path] == ["a.msg/minutes.txt"]
    assert night.text("a.msg/minutes.txt") == "Ann Lee wrote."


@pytest.mark.parametrize(
    "body",
    [
        {"1000001F": "Ask Bo Wu.\r\nIn Riga.".encode("utf-16-le")},
        {"1000001E": b"Ask Bo Wu.\r\nIn Riga.\0"},
        {"10130102": b"<p>Ask Bo Wu.</p><p>In Riga.</p>"},
    ],
)
def test_a_mail_that_is_attached_to_an_outlook_mail_is_read(body: dict[str, bytes], tmp_path: Path) -> None:
    night = Night(tmp_path, {"all": {"folder": "."}})
    heads = {"0037001F": "Offer", "0C1A001F": "Jörg Lee", "0E04001F": "Cy Fox"}
    inner = body | {tag: text.encode("utf-16-le") for tag, text in heads.items()}
    (night.root / "a.msg").write_bytes(mail_with({"one.txt": b"Hello there."}, {"1000001F": b"H\0i\0"}, inner))
    (path,) = (path for path in night.paths() if path.endswith(".eml"))
    assert path == "a.msg/part-000000FF.eml"
    assert night.text(path) == "Subject: Offer\nFrom: Jörg Lee\nTo: Cy Fox\n\nAsk Bo Wu.\nIn Riga."


def test_a_mailbox_of_broken_mails_gives_what_can_be_read(tmp_path: Path) -> None:
    night = Night(tmp_path, {"all": {"folder": "."}})
    broken = (
        written.mail("One", "Ann Lee wrote.").replace(b"boundary=", b"boundry="),
        written.mail("Two", "Bo Wu wrote.")[:-40].replace(b"base64", b"base65"),
        b"Content-Type: multipart/mixed; boundary=x\nSubject: =?utf-8?q?=FF=FE?=\n\n--x\n\nInes Duarte wrote.\n--y--\n",
        _plain(4),
    )
    (night.root / "box.mbox").write_bytes(
        b"".join(b"From a@b Thu Jan  1 00:00:00 2026\n" + each + b"\n" for each in broken)
    )
    found = night.run()
    texts = [night.text(each.key.path) for each in found.changed if each.key.path.count("/") == 1]
    assert len(texts) == len(broken) and not found.rejected
    for said in ("Ann Lee wrote.", "Bo Wu wrote.", "Ines Duarte wrote.", "Body 4."):
        assert any(said in text for text in texts), said


def test_files_are_taken_out_of_a_mail_whatever_they_are_called(tmp_path: Path) -> None:
    """After a name in an encoding that nobody knows the other files were lost, and so was one without a name."""
    mail = EmailMessage()
    mail.set_content("See the files.")
    for name in ("first.txt", "last.txt"):
        mail.add_attachment(f"The {name}.", filename=name)
    mail.add_attachment(written.pdf("From the scanner."), maintype="application", subtype="pdf")
    night = Night(tmp_path, {"all": {"folder": "."}})
    (night.root / "a.eml").write_bytes(mail.as_bytes().replace(b'"first.txt"', b'"=?x-none?Q?first?=.txt"'))
    assert sorted(night.paths()) == ["a.eml", "a.eml/first.txt", "a.eml/last.txt", "a.eml/part-5.pdf"]
    assert night.text("a.eml/part-5.pdf") == "From the scanner."


def _plain(number: int) -> bytes:
    return f"From: a@example.org\nSubject: {number}\n\nBody {number}.\n\n".encode()


def _mail_with_mail() -> bytes:
    inner = EmailMessage()
    inner["Subject"] = "inner"
    inner.set_content("Inner body.")
    inner.add_attachment(
        written.pdf("The report itself."), maintype="application", subtype="pdf", filename="../../report.pdf"
    )
    outer = EmailMessage()
    outer["Subject"] = "outer"
    outer.set_content("Outer body.")
    outer.add_attachment(inner)
    return outer.as_bytes()


def test_hostile_archives_are_refused_with_a_reason(tmp_path: Path) -> None:
    night = Night(tmp_path, {"all": {"folder": "."}}, unpacking={"max_files": 50, "max_mb": 8}, max_bytes=2**22)
    (night.root / "bomb.zip").write_bytes(written.zipped({f"{n}.txt": b"0" * 2**22 for n in range(3)}))
    nested = written.zipped({f"{n}.txt": b"0" * 2**22 for n in range(1)})
    (night.root / "nested.zip").write_bytes(written.zipped({"a.zip": nested, "b.zip": nested, "c.txt": TEXT}))
    (night.root / "many.zip").write_bytes(written.zipped({f"{n}.txt": b"x" for n in range(60)}))
    (night.root / "broken.zip").write_bytes(b"PK\3\4 and nothing else")
    damaged = bytearray(written.zipped({"good.txt": TEXT, "bad.txt": bytes(range(256)) * 40}))
    damaged[-300] ^= 0xFF
    (night.root / "damaged.zip").write_bytes(damaged)
    (night.root / "large.zip").write_bytes(written.zipped({"large.txt": b"0" * (2**22 + 1)}))
    climbing = {"../../../out.txt": TEXT, "/etc/out.txt": TEXT, "a\\..\\..\\b.txt": TEXT, "line\nend.txt": TEXT}
    (night.root / "climbing.zip").write_bytes(written.zipped(climbing))
    found = night.run()
    reasons = {each.key.path: each.reason for each in found.rejected}
    assert reasons.pop("bomb.zip") == "unpacked more than 8,388,608 bytes (documents.unpacking.max_mb)"
    assert reasons.pop("many.zip") == "more than 50 files (documents.unpacking.max_files)"
    assert "not a ZIP archive" in reasons.pop("broken.zip")
    assert "more than documents.max_bytes" in reasons.pop("large.zip/large.txt")
    assert "max_mb" in reasons.pop("nested.zip/b.zip"), "one limit for all that one file holds"
    if "damaged.zip/bad.txt" in reasons:
        assert "cannot be unpacked" in reasons.pop("damaged.zip/bad.txt")
    assert not reasons
    assert {each.key.path for each in found.changed if each.key.path.startswith("climbing")} == {
        "climbing.zip/%2E%2E/%2E%2E/%2E%2E/out.txt",
        "climbing.zip/etc/out.txt",
        "climbing.zip/a/%2E%2E/%2E%2E/b.txt",
        "climbing.zip/line%0Aend.txt",
    }
    assert not list(tmp_path.rglob("out.txt/..")) and not (tmp_path / "out.txt").exists()
    assert nothing_new(night.run())


def test_an_archive_that_is_refused_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was just written is opened on the next night, too, and was then rejected anew."""
    night = Night(tmp_path, {"all": {"folder": "."}})
    put(night, "broken.zip", b"PK\3\4 and nothing else", 0)
    monkeypatch.setattr("ec1.documents.sources.unpack._RACY_NS", 10**20)
    assert len(night.run().rejected) == 1 and nothing_new(night.run())
    monkeypatch.undo()
    assert nothing_new(night.run())


def test_encrypted_members_are_said_one_by_one(tmp_path: Path) -> None:
    night = Night(tmp_path, {"all": {"folder": "."}})
    plain = bytearray(written.zipped({"secret.txt": TEXT}))
    for mark, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        plain[plain.index(mark) + at] |= 1
    (night.root / "locked.zip").write_bytes(plain)
    assert [(each.key.path, each.reason) for each in night.run().rejected] == [("locked.zip/secret.txt", "encrypted")]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a/b.pdf", "a/b.pdf"),
        ("//a//./b.pdf", "a/b.pdf"),
        ("../../b.pdf", "%2E%2E/%2E%2E/b.pdf"),
        ("a\0b\x1b.pdf", "a%00b%1B.pdf"),
        ("..", "%2E%2E"),
        ("", "%"),
        ("50%.pdf", "50%25.pdf"),
    ],
)
def test_a_name_from_outside_stays_inside(name: str, path: str) -> None:
    assert place(name) == path


def test_names_do_not_meet() -> None:
    def item(name: str) -> Item:
        return Item(name, "1", 0, bytes)

    names = ["a.pdf", "./a.pdf", "a.pdf", "a.pdf/b.pdf", "é" * 300 + ".pdf", "x/" * 2000 + "y.pdf", "a\udcff.pdf"]
    found = places(map(item, names))
    assert len(found) == len(names)
    assert {each.name for each in found.values()} == set(names)
    assert all(len(part.encode()) <= 255 for path in found for part in path.split("/"))
    assert all(len(path.encode()) <= 4000 and path.endswith(".pdf") for path in found)
    assert not any(f"{path}/" in other for path in found for other in found)


def test_a_crash_on_the_way_costs_what_was_under_way(tmp_path: Path) -> None:
    read: list[str] = []

    def item(name: str) -> Item:
        def data() -> bytes:
            read.append(name)
            if name == "c.txt" and len(read) == 3:
                raise DeferredError("cut off")
            return TEXT

        return Item(name, "1", 0, data)

    items = [item(f"{name}.txt") for name in "abcd"]
    with Copies(tmp_path) as copies, pytest.raises(DeferredError):
        copies.bring("s", items, lambda name: True, stream="s", max_bytes=100)
    with Copies(tmp_path) as copies:
        copies.bring("s", items, lambda name: True, stream="s", max_bytes=100)
    assert read == ["a.txt", "b.txt", "c.txt", "c.txt", "d.txt"]


def test_an_archive_is_opened_with_the_limits_of_now(tmp_path: Path) -> None:
    (tmp_path / "share").mkdir()
    with zipfile.ZipFile(tmp_path / "share/a.zip", "w") as archive:
        archive.writestr("a.txt", TEXT)
        archive.writestr("b.pdf", written.EACH["a.pdf"])
    os.utime(tmp_path / "share/a.zip", (10**9, 10**9))
    night = Night(tmp_path, {"all": {"folder": ".", "suffixes": [".zip", ".txt"]}})
    assert night.paths() == ["a.zip/a.txt"]
    other = Night(tmp_path, {"all": {"folder": ".", "suffixes": [".zip", ".pdf"]}}, max_vanished_share=1)
    other.ledger = night.ledger
    found = other.run()
    assert [each.key.path for each in found.changed] == ["a.zip/b.pdf"]
    assert found.vanished == (DocumentKey("all", "a.zip/a.txt"),)


def test_an_archive_that_took_too_long_is_opened_again_once_it_may_take_longer(tmp_path: Path) -> None:
    (tmp_path / "share").mkdir()
    with zipfile.ZipFile(tmp_path / "share/a.zip", "w") as archive:
        archive.writestr("a.txt", TEXT)
    os.utime(tmp_path / "share/a.zip", (10**9, 10**9))
    streams: dict[str, object] = {"all": {"folder": "."}}
    hurried = Night(tmp_path, streams, conversion={"max_seconds": 0.000001})
    assert [each.reason for each in hurried.run().rejected] == [
        "not opened within 1e-06 s (documents.conversion.max_seconds)"
    ]
    assert nothing_new(hurried.run()), "nor is it opened each night"
    patient = Night(tmp_path, streams)
    patient.ledger = hurried.ledger
    assert patient.paths() == ["a.zip/a.txt"]


def put(night: Night, name: str, data: bytes, second: int) -> None:
    """A container of the share, as old as that."""
    (night.root / name).write_bytes(data)
    os.utime(night.root / name, (10**9 + second, 10**9 + second))


@pytest.mark.parametrize("asked", ["open", "read"])
def test_a_process_that_is_killed_takes_no_document_away_and_is_told(
    asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without memory kills what is large: the archive's documents left the graph, for as long as it stayed
    the same."""
    night = Night(tmp_path, {"all": {"folder": "."}}, max_vanished_share=1)
    inner = written.zipped({"c.txt": TEXT + b" C"})
    put(night, "a.zip", written.zipped({"a.txt": TEXT, "b.txt": TEXT + b" B", "in.zip": inner}), 0)
    known = night.paths()
    assert len(known) == 3 and nothing_new(night.run())
    put(night, "a.zip", written.zipped({"a.txt": TEXT + b" A", "d.txt": TEXT + b" D", "in.zip": inner}), 1)
    send = Opener._send

    def killed(self: Opener, request: dict[str, object]) -> None:
        if asked not in request:
            return send(self, request)
        process = self._process or self._start()
        # So it has given no answer when it is killed.
        process.send_signal(signal.SIGSTOP)
        send(self, request)
        process.kill()

    monkeypatch.setattr(Opener, "_send", killed)
    found = night.run()
    assert not found.vanished and not found.rejected
    ((key, reason),) = [(each.key.path, each.reason) for each in found.postponed]
    assert key == "a.zip" and "killed" in reason
    monkeypatch.setattr(Opener, "_send", send)
    found = night.run()
    assert {each.key.path for each in found.changed} == {"a.zip/a.txt", "a.zip/d.txt"}
    assert [key.path for key in found.vanished] == ["a.zip/b.txt"] and not found.postponed
    assert nothing_new(night.run())


def test_an_archive_from_the_future_is_read(tmp_path: Path) -> None:
    night = Night(tmp_path, {"all": {"folder": "."}})
    put(night, "a.zip", written.zipped({"a.txt": TEXT}), 4 * 10**9)
    assert night.paths() == ["a.zip/a.txt"]


def test_a_slow_night_takes_no_document_away(tmp_path: Path) -> None:
    streams: dict[str, object] = {"all": {"folder": "."}}
    night = Night(tmp_path, streams, max_vanished_share=1)
    put(night, "a.zip", written.zipped({"a.txt": TEXT}), 0)
    assert night.paths() == ["a.zip/a.txt"]
    put(night, "a.zip", written.zipped({"a.txt": TEXT, "b.txt": TEXT + b" B"}), 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Opener, "_bytes", lambda self: (_ for _ in ()).throw(TooSlowError("not opened within 60 s")))
        found = night.run()
    assert not (found.vanished or found.rejected) and [each.key.path for each in found.postponed] == ["a.zip"]
    assert night.paths() == ["a.zip/b.txt"]


def test_what_a_stream_no_longer_takes_is_retracted(tmp_path: Path) -> None:
    """A file that looked unchanged counted on after the deployment had stopped reading its kind."""

    def night(**rules: object) -> Night:
        return Night(tmp_path, {"all": {"folder": "notes", **rules}}, max_vanished_share=1)

    first, taken = night(), ("a.txt", "north/minutes/b.txt", "north/minutes/c.zip", "north/d.md", "e-final.txt")
    for name in taken:
        path = first.root / "notes" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{TEXT.decode()} {name}")
        if path.suffix == ".zip":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("f.txt", TEXT)
        os.utime(path, (10**9, 10**9))
    assert len(first.paths()) == 5 and nothing_new(first.run())
    for rules, gone in (
        ({"suffixes": [".txt", ".zip"]}, ["north/d.md"]),
        ({"suffixes": [".txt", ".zip"], "pattern": "*/minutes/*"}, ["a.txt", "e-final.txt"]),
        ({"suffixes": [".txt", ".zip"], "pattern": "*/b.txt"}, ["north/minutes/c.zip/f.txt"]),
    ):
        other = night(**rules)
        other.ledger = first.ledger
        found = other.run()
        assert [key.path for key in found.vanished] == [f"notes/{name}" for name in gone]
        assert not found.changed and not found.rejected and nothing_new(other.run())
        first = other
    left = {key.path for key in first.ledger}
    assert left == {"notes/north/minutes/b.txt"}


def test_a_link_does_not_take_a_document_out_of_its_labels(tmp_path: Path) -> None:
    night = Night(tmp_path, {"open": {"folder": "open"}, "hr": {"folder": "hr", "labels": ["hr"]}})
    for name in ("open/a.txt", "hr/pay.txt"):
        (night.root / name).parent.mkdir(exist_ok=True)
        (night.root / name).write_bytes(TEXT + name.encode())
    for name, target in (("pay.txt", "../hr/pay.txt"), ("all", ".."), ("folder", "../hr"), ("own.txt", "a.txt")):
        (night.root / "open" / name).symlink_to(target)
    found = night.run()
    assert [each.key.path for each in found.changed] == ["hr/pay.txt", "open/a.txt", "open/own.txt"]
    assert {each.key.path for each in found.rejected} == {"open/pay.txt", "open/all", "open/folder"}
    assert {each.reason for each in found.rejected} == {
        "a link to what has more access labels than the place where it stands"
    }
