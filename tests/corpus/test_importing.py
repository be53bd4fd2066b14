"""Files that people bring: each kind is read, each row is understood or counted with its reason, nothing vanishes."""

import bz2
import csv
import gzip
import json
import lzma
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub_formats import ROWS
from row_shapes import SHAPES

from ec1.corpus.importing import Import, import_rows
from ec1.corpus.mapping import mapping_of
from ec1.corpus.packed import MAX_LINE_BYTES
from ec1.corpus.tuples import example_of, load_record, parse_record
from ec1.errors import InputError
from ec1.night.operations.new_deployment import role_of

ROW = {"prompt": "Name a river.", "completion": "The Elbe.", "session_id": "S1"}


def as_lines(folder: Path, rows: list[Any]) -> Path:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "rows.jsonl"


def as_json(folder: Path, rows: list[Any]) -> Path:
    (folder / "rows.json").write_text(json.dumps(rows))
    return folder / "rows.json"


def as_lines_named_json(folder: Path, rows: list[Any]) -> Path:
    return as_lines(folder, rows).rename(folder / "rows.json")


def as_packed_lines(folder: Path, rows: list[Any]) -> Path:
    path = folder / "rows.jsonl.gz"
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    return path


def as_parquet(folder: Path, rows: list[Any]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet")
    return folder / "rows.parquet"


def as_csv(folder: Path, rows: list[Any]) -> Path:
    with (folder / "rows.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return folder / "rows.csv"


def as_saved(folder: Path, rows: list[Any]) -> Path:
    import datasets

    datasets.Dataset.from_list(rows).save_to_disk(str(folder / "rows"))
    return folder / "rows"


def as_saved_splits(folder: Path, rows: list[Any]) -> Path:
    import datasets

    datasets.DatasetDict({"train": datasets.Dataset.from_list(rows)}).save_to_disk(str(folder / "rows"))
    return folder / "rows"


def lines(done: Import) -> list[bytes]:
    return done.path.read_bytes().splitlines()


@pytest.mark.parametrize(
    "write",
    [as_lines, as_json, as_lines_named_json, as_packed_lines, as_parquet, as_csv, as_saved, as_saved_splits],
)
def test_every_kind_of_file_gives_the_same_tuples(tmp_path: Path, write: Callable[[Path, list[Any]], Path]) -> None:
    rows = [ROW | {"completion": f"River {number}, with a comma\nand a line."} for number in range(3)]
    done = import_rows(write(tmp_path, rows), tmp_path / "corpus")
    assert (done.written, done.formats, done.refused, done.unread) == (3, {"prompt/completion": 3}, {}, {})
    assert done.path == tmp_path / "corpus/imported/rows.jsonl"
    items = [parse_record(load_record(line)) for line in lines(done)]
    assert [example_of(item, "sft")["completion"][0]["content"] for item in items] == [
        row["completion"] for row in rows
    ]
    assert {item.sources for item in items} == {("session_id:S1",)}
    again = import_rows(write(tmp_path / "corpus", rows), tmp_path / "corpus")
    assert again.unchanged and again.written == 3


@pytest.mark.parametrize("name", ROWS | SHAPES)
def test_a_row_that_was_imported_means_what_it_meant_before(tmp_path: Path, name: str) -> None:
    row, (outcome, reason) = (ROWS | SHAPES)[name]
    # A table has no place for a list whose parts are of different shapes.
    source = (as_lines if name in SHAPES or "image part" in name else as_parquet)(tmp_path, [row])
    if outcome == "refused":
        with pytest.raises(InputError, match=r"no row can be learnt from: 1 .*" + re.escape(reason)):
            import_rows(source, tmp_path / "corpus")
        return
    done = import_rows(source, tmp_path / "corpus")
    [line] = lines(done)
    objective: Any = "dpo" if outcome == "pair" else "sft"
    before = example_of(parse_record(load_record(json.dumps(row))), objective)
    assert example_of(parse_record(load_record(line)), objective) == before


def test_whatever_is_left_out_is_counted_and_named(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    as_lines(folder, [ROW | {"tags": ["a" * 300], "id": 7}, {"prompt": "Sky?"}, {"label": True, **ROW}])
    (folder / "rows.jsonl").open("a").write("{broken\n")
    (folder / "notes.md").write_text("# notes")
    (folder / "weights.bin").write_bytes(b"0")
    done = import_rows(folder, tmp_path / "corpus")
    assert (done.written, done.files) == (1, 1)
    assert done.unread == {".bin": 1, ".md": 1}
    assert done.dropped_keys == {"tags": 1}
    assert {reason.split(":")[0]: count for reason, count in done.refused.items()} == {
        "prompt without completion or response": 1,
        "a KTO row (label)": 1,
        "not valid JSON": 1,
    }
    assert done.examples["prompt without completion or response"] == "rows.jsonl:2"
    assert json.loads(lines(done)[0])["metadata"] == {"import": "data", "id": 7}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252"])
@pytest.mark.parametrize("ending", ["", ".gz", ".bz2", ".xz", ".zst"])
def test_packed_and_encoded_files_are_read(tmp_path: Path, encoding: str, ending: str) -> None:
    lines_of = [json.dumps(ROW | {"completion": text}, ensure_ascii=False) for text in ("Elbe", "Müritz – “Übersee”")]
    raw = "\n".join(lines_of).encode(encoding)
    pack: dict[str, Callable[[bytes], bytes]] = {
        **{".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstd},
        "": bytes,
    }
    path = tmp_path / f"rows.jsonl{ending}"
    path.write_bytes(pack[ending](raw))
    done = import_rows(path, tmp_path / "corpus")
    assert [json.loads(line)["messages"][1]["content"] for line in lines(done)] == ["Elbe", "Müritz – “Übersee”"]
    told = {} if encoding.startswith("utf-8") else {path.name: encoding}
    assert done.encodings == told


def zstd(data: bytes) -> bytes:
    with pa.BufferOutputStream() as sink:
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(data)
        return bytes(sink.getvalue())


def test_what_is_damaged_refuses_itself_and_nothing_else(tmp_path: Path) -> None:
    folder, good = tmp_path / "data", json.dumps(ROW).encode()
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(good + b"\n" + good.replace(b"river", b"r\xffver \xc3\xa9") + b"\n" + good)
    (folder / "b.json").write_bytes(b"[" + good.replace(b"river", b"r\xffver") + b"]")
    (folder / "c.jsonl.gz").write_bytes(gzip.compress((good + b"\n") * 2000)[:-20])
    (folder / "d.parquet").write_bytes(b"PAR1 not really")
    (folder / "e.jsonl").write_bytes(b'{"prompt": "' + b"x" * MAX_LINE_BYTES + b'"}\n' + good)
    doubled, constant = good[:-1] + b', "prompt": "b"}', good[:-1] + b', "id": NaN}'
    (folder / "f.jsonl").write_bytes(b"\n".join([good, doubled, constant]))
    (folder / "g.json").write_bytes(b"[" + b",".join([good, doubled, constant, good]) + b"]")
    done = import_rows(folder, tmp_path / "corpus")
    where: dict[str, list[str]] = {}
    for reason, place in done.examples.items():
        where.setdefault(place.split(":")[0], []).append(reason)
    assert done.refused["holds a key twice"] == done.refused["NaN is not JSON"] == 2
    assert done.refused["not UTF-8, or longer than 16 MiB"] == 2
    assert where["b.json"] == ["the file is neither UTF-8 nor UTF-16 nor Windows-1252"]
    assert where["d.parquet"][0].startswith("from here on the file cannot be read")
    assert where["c.jsonl.gz"][0].startswith("from here on the file cannot be read")
    # The whole lines of a cut file are rows like others.
    assert done.written >= 2 + 1 + 1 + 2 and done.repeated == done.written - 1


def test_a_test_split_is_not_trained_on(tmp_path: Path) -> None:
    import datasets

    def rows(text: str) -> datasets.Dataset:
        return datasets.Dataset.from_list([ROW | {"completion": text}])

    datasets.DatasetDict({"train": rows("Elbe"), "test": rows("Oder")}).save_to_disk(str(tmp_path / "saved"))
    folder = tmp_path / "files"
    (folder / "validation").mkdir(parents=True)
    rows("Elbe").to_parquet(folder / "train-00000-of-00001.parquet")
    rows("Oder").to_parquet(folder / "test-00000-of-00001.parquet")
    rows("Main").to_parquet(folder / "validation" / "0.parquet")
    for path, splits in ((tmp_path / "saved", {"test"}), (folder, {"test", "validation"})):
        done = import_rows(path, tmp_path / "corpus")
        assert [json.loads(line)["messages"][1]["content"] for line in lines(done)] == ["Elbe"]
        assert done.unread == {f"of the split {name} (--split {name} takes it)": 1 for name in splits}
        [line] = lines(import_rows(path, tmp_path / "corpus", split="test"))
        assert json.loads(line)["messages"][1]["content"] == "Oder"
        with pytest.raises(InputError, match="name one of its splits with --split: test"):
            import_rows(path, tmp_path / "corpus", split="dev")


def test_a_row_that_holds_objects_is_no_list_of_rows(tmp_path: Path) -> None:
    row = {"prompt": "Plan?", "completion": "One.", "steps": [ROW, ROW]}
    (tmp_path / "one.json").write_text(json.dumps(row))
    with pytest.raises(InputError, match="1 nobody reads steps"):
        import_rows(tmp_path / "one.json", tmp_path / "corpus")
    (tmp_path / "many.json").write_text(json.dumps({"version": "1", "data": [ROW, ROW]}))
    done = import_rows(tmp_path / "many.json", tmp_path / "corpus")
    assert (done.written, done.repeated) == (2, 1)


def test_a_label_in_a_table_is_one_too(tmp_path: Path) -> None:
    for value in ("False", "0"):
        with pytest.raises(InputError, match="KTO"):
            import_rows(as_csv(tmp_path, [ROW | {"label": value}]), tmp_path / "corpus")
    with pytest.raises(InputError, match="KTO"):
        import_rows(as_parquet(tmp_path, [ROW | {"label": 0}]), tmp_path / "corpus")


def test_keys_that_a_person_names_are_kept_beside_the_row(tmp_path: Path) -> None:
    source = as_lines(tmp_path, [ROW | {"rating": 5, "vector": [0.5] * 100}])
    with pytest.raises(InputError, match="nobody reads rating, vector: name it in --ignore-keys"):
        import_rows(source, tmp_path / "corpus")
    done = import_rows(source, tmp_path / "corpus", ignored=["rating", "vector"])
    [line] = lines(done)
    assert done.dropped_keys == {"vector": 1}
    assert json.loads(line)["metadata"] == {"rating": 5, "import": "rows", "ignored": "rating, vector"}
    assert example_of(parse_record(load_record(line)), "sft")["completion"][0]["content"] == "The Elbe."


def test_a_mapping_takes_no_text_away(tmp_path: Path) -> None:
    source = as_lines(tmp_path, [{"prompt": "Context.", "question": "Sky?", "completion": "Blue."}])
    with pytest.raises(InputError, match="nobody reads unmapped_prompt"):
        import_rows(source, tmp_path / "corpus", mapping=mapping_of("prompt=question", None, None))


def test_a_folder_without_rows_says_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("# notes")
    with pytest.raises(InputError, match=r"holds no .*but 1 \.md"):
        import_rows(tmp_path, tmp_path / "corpus")


def test_a_snapshot_in_the_hubs_cache_is_links_to_its_own_files(tmp_path: Path) -> None:
    repository = tmp_path / "datasets--acme--rivers"
    data = repository / "snapshots" / "3f1e2d" / "data"
    for folder in (data, repository / "blobs"):
        folder.mkdir(parents=True)
    as_lines(repository / "blobs", [ROW]).rename(repository / "blobs" / "9a0364")
    (data / "train-00000.jsonl").symlink_to("../../../blobs/9a0364")
    (data / "secret.jsonl").symlink_to(as_lines(tmp_path, [{**ROW, "completion": "Elsewhere."}]))
    (data / "gone.jsonl").symlink_to("../../../blobs/00")
    snapshot = repository / "snapshots" / "3f1e2d"
    # A file of it has its own name: two of them are two files of the corpus.
    for path, name in ((snapshot, "rivers"), (data / "train-00000.jsonl", "train-00000")):
        done = import_rows(path, tmp_path / path.name)
        assert (done.written, done.path.name) == (1, f"{name}.jsonl")
        assert role_of(path) == name and "Elsewhere" not in done.path.read_text()


def test_only_the_named_format_is_taken(tmp_path: Path) -> None:
    source = as_lines(tmp_path, [ROW, ROWS["ShareGPT"][0]])
    done = import_rows(source, tmp_path / "corpus", only="sharegpt")
    assert (done.formats, done.refused) == ({"sharegpt": 1}, {"is of format prompt/completion, not sharegpt": 1})


def test_columns_are_mapped_by_hand(tmp_path: Path) -> None:
    source = as_csv(tmp_path, [{"frage": "Himmel?", "antwort": "Blau."}])
    done = import_rows(source, tmp_path / "corpus", mapping=mapping_of("prompt=frage,completion=antwort", None, None))
    assert example_of(parse_record(load_record(lines(done)[0])), "sft")["completion"][0]["content"] == "Blau."
    with pytest.raises(InputError, match=r"no column 'text', which is mapped to completion"):
        import_rows(source, tmp_path / "other", mapping=mapping_of("prompt=frage,completion=text", None, None))


def test_what_the_keys_are_is_said_and_by_hand_mapped(tmp_path: Path) -> None:
    source = as_lines(tmp_path, [{"problem": "Sky?", "solution": "Blue."}])
    with pytest.raises(
        InputError, match="no known format: its keys are problem, solution; ec1 corpus import --columns"
    ):
        import_rows(source, tmp_path / "corpus")


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_table_is_read_by_the_delimiter_of_its_first_line(delimiter: str, tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    with source.open("w", newline="", encoding="utf-8-sig") as stream:
        writer = csv.writer(stream, delimiter=delimiter)
        writer.writerows([("question", "answer"), ("Sky; sea, or both?", "Blue,\nboth; always.\tYes.")])
    (line,) = lines(import_rows(source, tmp_path / "corpus"))
    assert example_of(parse_record(load_record(line)), "sft")["completion"][0]["content"].startswith(
        "Blue,\nboth; always."
    )


def test_llama_factorys_dataset_info_maps_columns_and_tags(tmp_path: Path) -> None:
    info = tmp_path / "dataset_info.json"
    entries = {
        "talk": {
            "formatting": "sharegpt",
            "columns": {"messages": "turns", "system": "sys"},
            "tags": {"role_tag": "who", "content_tag": "what", "user_tag": "kunde", "assistant_tag": "berater"},
        },
        "pairs": {"ranking": True, "columns": {"prompt": "frage", "chosen": "gut", "rejected": "schlecht"}},
    }
    info.write_text(json.dumps(entries))
    turns = [{"who": "kunde", "what": "Himmel?"}, {"who": "berater", "what": "Blau."}]
    source = as_lines(tmp_path, [{"turns": turns, "sys": "Kurz."}])
    done = import_rows(source, tmp_path / "corpus", mapping=mapping_of(None, info, "talk"))
    found = example_of(parse_record(load_record(lines(done)[0])), "sft")
    assert [message["content"] for message in found["prompt"] + found["completion"]] == ["Kurz.", "Himmel?", "Blau."]
    source = as_lines(tmp_path, [{"frage": "Himmel?", "gut": "Blau.", "schlecht": "Gelb."}])
    done = import_rows(source, tmp_path / "corpus", mapping=mapping_of(None, info, "pairs"))
    assert example_of(parse_record(load_record(lines(done)[0])), "dpo")["rejected"][0]["content"] == "Gelb."
    with pytest.raises(InputError, match="name one of its data sets with --dataset: talk, pairs"):
        mapping_of(None, info, None)


def test_axolotls_property_mappings_are_read(tmp_path: Path) -> None:
    config = tmp_path / "axolotl.yml"
    config.write_text(
        "datasets:\n  - path: talk\n    type: chat_template\n    field_messages: turns\n"
        "    message_property_mappings: {role: who, content: what}\n    message_field_training: learn\n"
        "    roles: {user: [kunde], assistant: [berater]}\n"
    )
    turns = [
        {"who": "kunde", "what": "Himmel?"},
        {"who": "berater", "what": "Gelb.", "learn": False},
        {"who": "kunde", "what": "Sicher?"},
        {"who": "berater", "what": "Blau.", "learn": True},
    ]
    source = as_lines(tmp_path, [{"turns": turns}])
    done = import_rows(source, tmp_path / "corpus", mapping=mapping_of(None, config, None))
    found = example_of(parse_record(load_record(lines(done)[0])), "sft")
    assert found["prompt"][1] == {"role": "assistant", "content": "Gelb.", "train": False}
    config.write_text("datasets:\n  - path: talk\n    roles_to_train: [user, assistant]\n")
    with pytest.raises(InputError, match="roles_to_train"):
        mapping_of(None, config, None)
