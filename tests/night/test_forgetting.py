"""What is found however it is spelt, opened whatever it is in, and gone whenever the command was killed."""

import bz2
import contextlib
import gzip
import json
import lzma
import signal
import sqlite3
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from planted_person import PERSON, SPELLINGS, names_her, still_holding

from ec1.corpus.tombstones import Tombstones
from ec1.deployment import Deployment
from ec1.documents.convert import NoConverterError
from ec1.errors import BusyError, InputError, ServiceError
from ec1.gpu.lease import GpuLease
from ec1.home import Home
from ec1.night.forgetting import forget as forgetting
from ec1.night.forgetting.containers import texts_in
from ec1.night.forgetting.forget import Forgotten
from ec1.night.forgetting.wanted import Wanted
from ec1.night.stores import open_registry

WANTED = Wanted(person=PERSON)


def forget(wanted: Wanted, deployment: Deployment, home: Home) -> Forgotten:
    return forgetting.forget(wanted, deployment, home, open_registry(deployment, home), lambda *digests: [])


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_name_is_found_in_every_spelling(spelling: str) -> None:
    for text in (spelling, json.dumps(spelling), json.dumps({"a": json.dumps(spelling)}), f"<b>x</b>{spelling}&nbsp;y"):
        assert WANTED.in_text(text), text
        assert names_her(text)


@pytest.mark.parametrize("text", ["Ottilie", "Brandt", "Ottilie Brandtner", "Hans Brandt met Ottilie", "O. Brandt"])
def test_somebody_else_is_not_found(text: str) -> None:
    assert not WANTED.in_text(text)


def test_a_mark_that_makes_another_letter_makes_another_person() -> None:
    wanted = Wanted(person="カトウ ハルカ")
    assert wanted.in_text("ｶﾄｳ ﾊﾙｶ") and wanted.in_text("カトウ・ハルカさん")
    assert not wanted.in_text("ガトウ ハルカ") and not wanted.in_text("カトウ バルカ")


def test_in_writing_without_blanks_a_name_is_sure_beside_hiragana_and_else_named_by_a_person() -> None:
    wanted = Wanted(person="山田 太郎")
    for text in ("昨日は山田太郎さんが来た", "山田　太郎は", "（山田太郎）", "は太郎山田です"):
        assert wanted.in_text(text), text
    assert wanted.spellings("小山田太郎と山田太郎") == ({"山田太郎": 1}, {"小山田太郎と": 1})
    assert Wanted(person="王明").spellings("王明说, 王明华, 王明。") == ({"王明": 1}, {"王明说": 1, "王明华": 1})
    assert Wanted(person="王明", also=("王明说",)).in_text("昨天王明说他来")
    assert not Wanted(person="王明", also=("王明说",)).in_text("昨天王明华来")
    assert Wanted(person="김민수", also=("김민수",)).in_text("어제 김민수는 왔다")
    assert not Wanted(person="さくら").in_text("さくらんぼ")


def test_doubtful_spellings_are_counted_and_count_when_they_are_named() -> None:
    text = "O. Brandt wrote; Ottilie Maria Brandt read; Brandt's own; Ottilie Brandt."
    sure, doubtful = WANTED.spellings(text)
    assert sure == {"ottilie brandt": 1}
    assert doubtful == {"o. brandt": 1, "ottilie maria brandt": 1, "brandt": 1}
    assert Wanted(person=PERSON, also=("O. Brandt",)).in_text("as O. Brandt wrote")


def test_a_record_holds_it_in_keys_values_and_across_fields() -> None:
    for record in ({PERSON: 1}, {"by": ["x", PERSON]}, {"first": "Ottilie", "last": "Brandt"}):
        assert WANTED.in_record(record)
    assert Wanted(source="session_id:S1").in_record({"metadata": {"session_id": "S1"}})
    assert not Wanted(source="session_id:S1").in_record({"metadata": {"session_id": "S12"}})


@pytest.mark.parametrize(
    "wrong", [{}, {"person": "a", "match": "b"}, {"match": " "}, {"source": "S1"}, {"match": "--"}]
)
def test_one_thing_is_looked_for(wrong: dict[str, str]) -> None:
    with pytest.raises(InputError):
        Wanted(**wrong)  # type: ignore[arg-type]


def contained(folder: Path) -> list[Path]:
    """A file of each kind that holds her."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch
    from safetensors.torch import save_file

    line = json.dumps({"text": f"by {PERSON}"}).encode()
    folder.mkdir(parents=True)
    for name, packed in (("a.gz", gzip.compress(line)), ("a.bz2", bz2.compress(line)), ("a.xz", lzma.compress(line))):
        (folder / name).write_bytes(packed)
    (folder / "a.txt").write_bytes(f"by {PERSON}".encode("utf-16"))
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inner.gz", gzip.compress(line))
    with tarfile.open(folder / "a.tar.gz", "w:gz") as tar:
        tar.add(folder / "a.gz", "x/a.gz")
    pq.write_table(pa.table({"first": ["Ottilie"], "last": ["Brandt"]}), folder / "a.parquet", compression="zstd")
    with contextlib.closing(sqlite3.connect(folder / "a.db")) as database, database:
        database.execute("CREATE TABLE t(first TEXT, last TEXT)")
        database.execute("INSERT INTO t VALUES ('Ottilie', 'Brandt')")
    save_file({"w": torch.zeros(1)}, folder / "a.safetensors", metadata={"author": PERSON})
    return sorted(folder.iterdir())


def test_every_container_is_opened(tmp_path: Path) -> None:
    for path in contained(tmp_path / "files"):
        assert any(map(WANTED.in_text, texts_in(path))), path


def plant(home: Home) -> None:
    """Her name in every part of a home that is not the graph's, beside what must stay."""
    rows = [{"prompt": f"Where is part {n}?", "completion": f"In drawer {n * 3}."} for n in range(5)]
    hers = {"prompt": "Who keeps the drawers here?", "completion": f"It is {PERSON} who keeps all of them."}
    corpus = home.corpus / "engineering"
    corpus.mkdir(parents=True)
    lines = [*map(json.dumps, rows), json.dumps(hers), '{"broken": "Brandt,\\u00a0Ottilie']
    (corpus / "rows.jsonl").write_text("\n".join(lines) + "\n")
    (corpus / "packed.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    for path, text in (
        (home.documents / "service-agents/a.md", "Minutes.\n\nOttilie\nBrandt came with Ivo Tanner.\n"),
        (home.documents / "service-agents/b.md", "Minutes. Ivo Tanner came.\n"),
        (home.nights / "2026-06-01/report.json", json.dumps({"status": "done", "held": [{"sentence": PERSON}]})),
        (home.nights / "2026-06-01/report.html", f"<p>done</p>\n<p>{PERSON}</p>\n"),
        (home.logs / "serve.log", f"12:00 started →\n12:01 asked by {PERSON}\n12:02 ended\n"),
        (home.releases, json.dumps({"who": PERSON}) + "\n" + json.dumps({"who": "Ivo"}) + "\n"),
        (home.outbox / "f" / "aa" / f"{'a' * 64}.answers.jsonl", json.dumps({"content": PERSON}) + "\n"),
        (home.cache / "converted/aa/a.json", json.dumps({"title": PERSON})),
        (home.runs / "acme/engineering/2026-06-01/notes.json", json.dumps({"prompt": PERSON, "n": 1})),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for path, statement in (
        (home.dagster / "history/runs/x.db", "CREATE TABLE event_logs(id INTEGER PRIMARY KEY, event TEXT)"),
        (home.serving / "answers.sqlite", "CREATE TABLE answer(id INTEGER PRIMARY KEY, text TEXT)"),
        (home.root / "service-content/acme.sqlite", "CREATE TABLE sent(key INTEGER PRIMARY KEY, name TEXT)"),
    ):
        path.parent.mkdir(parents=True)
        with contextlib.closing(sqlite3.connect(path)) as database, database:
            database.execute(statement)
            table = statement.split("(")[0].rpartition(" ")[2]
            for text in (json.dumps({"kind": "x", "message": f"of {PERSON}"}), "Ivo Tanner"):
                database.execute(f"INSERT INTO {table} VALUES (NULL, ?)", [text])


def test_what_holds_her_goes_and_the_rest_stays(home: Home, embedded: Deployment) -> None:
    plant(home)
    planted = len(still_holding(home))
    assert planted == 13
    done = forget(WANTED, embedded, home)
    assert still_holding(home) == []
    assert done.left == {"service-content": done.left["service-content"]}, "it takes nothing back"
    assert [each.line for each in done.tuples if each.file.endswith("rows.jsonl")] == [6, 7]
    assert len((home.corpus / "engineering/rows.jsonl").read_text().splitlines()) == 5
    assert len(gzip.decompress((home.corpus / "engineering/packed.jsonl.gz").read_bytes()).splitlines()) == 5
    assert [path.name for path in (home.documents / "service-agents").iterdir()] == ["b.md"]
    assert json.loads((home.nights / "2026-06-01/report.json").read_text())["status"] == "done"
    assert (home.logs / "serve.log").read_text(encoding="utf-8") == "12:00 started →\n[removed]\n12:02 ended\n"
    assert home.releases.read_text() == '{"who": "Ivo"}\n'
    for path, rows in (("dagster/history/runs/x.db", 2), ("serving/answers.sqlite", 1)):
        with contextlib.closing(sqlite3.connect(home.root / path)) as database:
            (table,) = [name for (name,) in database.execute("SELECT name FROM sqlite_master")]
            assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (rows,), path
    assert forget(WANTED, embedded, home).files == {}


def test_tombstones_hold_against_a_changed_character_and_hold_no_text(
    home: Home, embedded: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ec1.corpus.tuples import parse_record

    # Whether two texts are almost the same is an estimate: with one salt in 160 it misses a pair.
    monkeypatch.setattr("ec1.corpus.tombstones.secrets.token_hex", lambda size: "07" * size)
    plant(home)
    forget(WANTED, embedded, home)
    removed = Tombstones(home)
    row = {"prompt": "Who keeps the drawers here?", "completion": f"It is {PERSON} who keeps all of them."}
    assert removed.refuses(parse_record(row))
    assert removed.refuses(parse_record(row | {"completion": row["completion"].replace("keeps", "kept")}))
    assert not removed.refuses(parse_record(row | {"completion": "It is Ivo Tanner who sees to them."}))
    assert removed.refuses_text("Minutes. Ottilie Brandt came with Ivo Tenner.")
    assert not removed.refuses_text("Minutes. Ivo Tanner came.")
    kept = "".join(path.read_text().lower() for path in home.removals.iterdir())
    assert not any(word in kept for word in ("ottilie", "brandt", "drawers", "tanner"))


def test_rows_of_one_template_that_differ_in_numbers_stay(home: Home) -> None:
    Tombstones(home).add(texts=["The pump number 17 was mended on day 4 of the month."])
    removed = Tombstones(home)
    assert not removed.refuses_text("The pump number 18 was mended on day 5 of the month.")
    assert removed.refuses_text("The pump number 17 was minded on day 4 of the month.")


def test_where_documents_cannot_be_read_it_says_so(
    home: Home, embedded: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(home)
    (home.documents / "service-agents/c.pdf").write_bytes(b"%PDF-1.4")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(NoConverterError, match="does not start"):
        forget(WANTED, embedded, home)


def test_it_does_not_run_beside_a_night(home: Home, embedded: Deployment) -> None:
    plant(home)
    lease = GpuLease(embedded.gpu_locks(home)[0], device="cpu", min_free_gib=0)
    with (
        lease.hold("training", night="2026-06-01", holder="a night", wait_seconds=0),
        pytest.raises(BusyError, match=r"a night .*is at work"),
    ):
        forget(WANTED, embedded, home)
    runs = home.dagster / "history" / "runs.db"
    with contextlib.closing(sqlite3.connect(runs)) as database, database:
        database.execute("CREATE TABLE runs(run_id TEXT, status TEXT)")
        database.execute("INSERT INTO runs VALUES ('0123456789ab', 'STARTED')")
    with pytest.raises(BusyError, match="Dagster run 01234567"):
        forget(WANTED, embedded, home)
    whole = runs.read_bytes()
    runs.write_bytes(b"SQLite format 3" * 300)
    with pytest.raises(ServiceError, match="whether a night is at work cannot be told"):
        forget(WANTED, embedded, home)
    runs.write_bytes(whole)
    assert len(still_holding(home)) == 13


@pytest.mark.slow
def test_killed_at_any_moment_the_same_command_finishes(home: Home, project: Path) -> None:
    plant(home)
    command = [sys.executable, "-m", "ec1.cli", "--home", str(home.root), "forget", "--person", PERSON]
    # Each time it is killed a little later, at the change of one more file.
    for changes in range(1, 12):
        script = _KILLED_AFTER.format(changes=changes, arguments=command[3:])
        done = subprocess.run([sys.executable, "-c", script], cwd=project, capture_output=True, text=True)
        if done.returncode != -signal.SIGKILL:
            break
    assert changes > 5, done.stderr
    finished = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert finished.returncode in (0, 3), finished.stdout + finished.stderr
    assert still_holding(home) == []
    assert all(json.loads(path.read_text()).get("finished", True) for path in home.removals.glob("2*.json"))
    assert Tombstones(home).refuses_text("Minutes. Ottilie Brandt came with Ivo Tanner.")


_KILLED_AFTER = """
import os, pathlib, shutil, signal, sys
left = {changes}
def counted(name, original):
    def call(*given, **named):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*given, **named)
    return call
pathlib.Path.replace = counted("replace", pathlib.Path.replace)
pathlib.Path.unlink = counted("unlink", pathlib.Path.unlink)
os.replace = counted("replace", os.replace)
shutil.rmtree = counted("rmtree", shutil.rmtree)
sys.argv = ["ec1", *{arguments}]
from ec1.cli import main
main()
"""
