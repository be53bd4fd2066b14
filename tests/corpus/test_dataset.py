"""From a snapshot to what a training reads, with the small model's real tokenizer."""

import copy
import datetime as dt
import json
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from corpus_builder import NIGHT, apprenticeship, edit, feedback, write_lines
from planted_secrets import TOKENS

from ec1.corpus.buckets import bucket
from ec1.corpus.dataset import SHARED, Dataset, build_dataset, load_dataset
from ec1.corpus.options import DataOptions
from ec1.corpus.rendering import render
from ec1.corpus.snapshots import Snapshot, take_snapshot
from ec1.corpus.split import assign
from ec1.errors import DamagedError, PermanentError
from ec1.home import Home


@pytest.fixture(scope="session")
def tokenizer(small_model: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(small_model)


def engineering(root: Path, home: Home, records: list[Any]) -> Snapshot:
    write_lines(root / "engineering/demo/all.jsonl", records)
    return take_snapshot(bucket(root, "engineering", "acme"), "sft", as_of=NIGHT, home=home)


def pairs(root: Path, home: Home, records: list[Any]) -> Snapshot:
    write_lines(root / "apprenticeship/t/all.jsonl", records)
    return take_snapshot(bucket(root, "apprenticeship", "acme"), "dpo", as_of=NIGHT, home=home)


def everything(dataset: Dataset) -> list[dict[str, Any]]:
    return [*dataset.rows("train"), *dataset.rows("heldout")]


def test_a_dataset_is_what_trl_reads(tmp_path: Path, home: Home, tokenizer: Any) -> None:
    import datasets

    snapshot = engineering(tmp_path, home, [edit(number) for number in range(40)])
    dataset = build_dataset(snapshot, DataOptions(), tokenizer, home=home, objective="sft")
    assert dataset.train_rows + dataset.heldout_rows == 40
    assert dataset.heldout_rows >= 1
    assert dataset.leaks == []
    row = dataset.rows("train")[0]
    tokens = {"input_ids", "completion_mask", "conversation", "tokens"}
    assert set(row) == {"prompt", "completion", "group", "origin", "row"} | tokens
    assert [message["role"] for message in row["prompt"] + row["completion"]] == ["user", "assistant"]
    ids = tokenizer.apply_chat_template(row["prompt"] + row["completion"], return_dict=True)["input_ids"]
    assert row["input_ids"] == ids
    assert row["tokens"] == len(ids)
    # As TRL would mark them itself from the columns of messages.
    asked = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, return_dict=True)["input_ids"]
    assert row["completion_mask"] == [0] * len(asked) + [1] * (len(ids) - len(asked))
    assert row["conversation"] is None
    assert dataset.tokens == sum(dataset.rows("train")["tokens"])
    files = {side: f"{dataset.path}/{side}/*.parquet" for side in ("train", "heldout")}
    loaded = datasets.load_dataset("parquet", data_files=files, cache_dir=str(tmp_path / "hf"))
    assert loaded["train"].to_list() == dataset.rows("train").to_list()
    assert {row["row"] for row in everything(dataset)} == {row.digest for row in snapshot.rows()}


def test_a_dpo_dataset_keeps_pairs(tmp_path: Path, home: Home, tokenizer: Any) -> None:
    records = [apprenticeship(number) for number in range(20)] + [feedback(number) for number in range(20, 40)]
    dataset = build_dataset(pairs(tmp_path, home, records), DataOptions(), tokenizer, home=home, objective="dpo")
    row = dataset.rows("train")[0]
    assert set(row) == {"prompt", "chosen", "rejected", "group", "origin", "row", "tokens"}
    longest = max(
        len(tokenizer(render(tokenizer, row["prompt"] + row[side]), add_special_tokens=False)["input_ids"])
        for side in ("chosen", "rejected")
    )
    assert row["tokens"] == longest
    assert dataset.tokens > sum(dataset.rows("train")["tokens"])


def test_the_same_parts_give_the_same_dataset_wherever_they_lie(tmp_path: Path, tokenizer: Any) -> None:
    records = [edit(number) for number in range(40)]
    digests = []
    for name in ("one", "other"):
        random.Random(name).shuffle(records)
        home = Home(tmp_path / name / "home")
        snapshot = engineering(tmp_path / name, home, records)
        digests.append(build_dataset(snapshot, DataOptions(), tokenizer, home=home, objective="sft").digest)
    assert digests[0] == digests[1]
    other = build_dataset(snapshot, DataOptions(seed=1), tokenizer, home=home, objective="sft")
    assert other.digest != digests[0]


def test_a_dataset_is_built_once(tmp_path: Path, home: Home, tokenizer: Any) -> None:
    snapshot = engineering(tmp_path, home, [edit(number) for number in range(40)])
    first = build_dataset(snapshot, DataOptions(), tokenizer, home=home, objective="sft")
    stamp = (first.path / "manifest.json").stat().st_mtime_ns
    for path in snapshot.path.glob("tuples*"):
        path.write_bytes(b"")
    assert build_dataset(snapshot, DataOptions(threshold=7), tokenizer, home=home, objective="sft") == first
    assert (first.path / "manifest.json").stat().st_mtime_ns == stamp
    assert load_dataset(home, first.digest) == first


def test_a_damaged_dataset_is_found_and_built_again(tmp_path: Path, home: Home, tokenizer: Any) -> None:
    snapshot = engineering(tmp_path, home, [edit(number) for number in range(40)])
    whole = build_dataset(snapshot, DataOptions(), tokenizer, home=home, objective="sft")
    rows = everything(whole)
    for name in ("manifest.json", "train/rows.parquet", "heldout/rows.parquet"):
        for keep in (1.0, 0.5, 0.0):
            path = whole.path / name
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.unlink()
            if keep:
                path.write_bytes(data[: int(len(data) * keep)])
            with pytest.raises(DamagedError, match="built from its snapshot"):
                load_dataset(home, whole.digest)
            again = build_dataset(snapshot, DataOptions(), tokenizer, home=home, objective="sft")
            assert again.digest == whole.digest and everything(again) == rows


def test_no_planted_secret_reaches_the_dataset(tmp_path: Path, home: Home, tokenizer: Any) -> None:
    rng, secrets, records = random.Random(5), [], []
    for number, (_, make) in enumerate(sorted(TOKENS.items())):
        secrets.append(make(rng))
        diff = edit(number)["diff"] + f'+    client = Client("{secrets[-1]}")\n'
        records.append(edit(number, diff=diff, commit_msg=f"use {secrets[-1]}"))
    snapshot = engineering(tmp_path, home, records)
    dataset = build_dataset(snapshot, DataOptions(max_length=2048), tokenizer, home=home, objective="sft")
    assert dataset.train_rows + dataset.heldout_rows == len(records)
    assert sum(dataset.scrubbed.values()) >= 2 * len(secrets)
    written = json.dumps(everything(dataset)) + (dataset.path / "manifest.json").read_text()
    for secret in secrets:
        for part in secret.replace("/", " ").replace("@", " ").split():
            # The host of a login in a URL is not secret and stays.
            if len(part) >= 20 and not part.startswith("db.fern.example"):
                assert part not in written
    raw = DataOptions(max_length=2048, scrub=False)
    assert secrets[0] in json.dumps(everything(build_dataset(snapshot, raw, tokenizer, home=home, objective="sft")))


def test_overlapping_sessions_do_not_leak(tmp_path: Path, home: Home, tokenizer: Any) -> None:
    """A feedback names only its brief, the apprenticeship tuple of that brief also its session."""
    records: list[dict[str, Any]] = []
    for number in range(60):
        records.append(apprenticeship(number, session_id=f"S{number // 6}"))
        records.append(feedback(number))
        records.append(
            feedback(number, chosen=feedback(number)["chosen"] + f" Again, now as answer {number}, in full.")
        )
    dataset = build_dataset(pairs(tmp_path, home, records), DataOptions(), tokenizer, home=home, objective="dpo")
    assert dataset.leaks == []
    briefs = {side: {_brief(row) for row in dataset.rows(side)} for side in ("train", "heldout")}
    assert briefs["train"] and briefs["heldout"]
    assert briefs["train"].isdisjoint(briefs["heldout"])
    assert dataset.rejected[SHARED] >= 1


def _brief(row: dict[str, Any]) -> str:
    digits = [
        word for word in row["prompt"][0]["content"].replace(".", "").split() if word[:1] in "xm" and word[1:].isdigit()
    ]
    return digits[0][1:]


LONG = "\n".join(f"+    step_{number}(state, limit={number})" for number in range(60))


def twin(number: int, **changes: Any) -> dict[str, Any]:
    """One of many commits that say nearly the same."""
    words = {"commit_msg": f"same words {number}", "cluster": None, "diff": LONG + f"\n+# {number}\n"}
    return edit(number, **words, **changes)


def test_groups_that_say_nearly_the_same_are_on_one_side(tmp_path: Path, home: Home, tokenizer: Any) -> None:
    """The oldest decides, so that a new one joins its side: what was held out last night is not trained on tonight."""
    options = DataOptions(heldout_share=0.5, max_length=2048)
    others = [edit(number) for number in range(100, 130)]
    alone = {assign(f"source_commit:{number:040x}", 0.5, 0): number for number in range(12)}
    assert set(alone) == {"train", "heldout"}, "each for itself would be on either side"
    for side, oldest in alone.items():
        twins = [twin(n, created=f"2026-05-{1 if n == oldest else 2 + n:02}T00:00:00Z") for n in range(12)]
        for order in (twins, twins[::-1]):
            snapshot = engineering(tmp_path / side, home, [*order, *others])
            dataset = build_dataset(snapshot, options, tokenizer, home=home, objective="sft")
            left = {
                where
                for where in ("train", "heldout")
                for row in dataset.rows(where)  # type: ignore[arg-type]
                if "step_59" in row["completion"][0]["content"]
            }
            assert left == {side} and dataset.rejected == {"near duplicate": 11}


def test_other_roles_are_mixed_into_training_by_weight(tmp_path: Path, home: Home, tokenizer: Any) -> None:
    own = [edit(number) for number in range(60)]
    snapshot = engineering(tmp_path, home, own)
    copies = [{**own[number], "tenant": "acme"} for number in range(60)]
    write_lines(tmp_path / "general/all.jsonl", [*(edit(number) for number in range(500, 560)), *copies])
    general = take_snapshot(bucket(tmp_path, "general", "acme"), "sft", as_of=NIGHT, home=home)
    plain = build_dataset(snapshot, DataOptions(), tokenizer, home=home, objective="sft")
    options = DataOptions(mix={"general": 0.5})
    mixed = build_dataset(snapshot, options, tokenizer, home=home, objective="sft", mixed={"general": general})
    rows = {name: {row["row"] for row in each.rows("train")} for name, each in (("plain", plain), ("mixed", mixed))}
    held = [{row["row"] for row in each.rows("heldout")} for each in (plain, mixed)]
    assert held[0] == held[1] and mixed.leaks == [], "what is held out is the role's own, and nobody trains on it"
    assert rows["plain"] < rows["mixed"]
    assert len(rows["mixed"] - rows["plain"]) == round(0.5 * plain.train_rows)
    wanted = round(0.5 * plain.train_rows)
    assert mixed.mixed == {"general": {"snapshot": general.digest, "rows": wanted, "wanted": wanted}}
    assert mixed.mixed_shares == [f"general: {wanted} of {wanted} rows"]
    assert mixed.rejected["beyond the weight of general in data.mix"] > 0 and mixed.rejected[SHARED] > 0
    assert load_dataset(home, mixed.digest) == mixed != plain
    with pytest.raises(PermanentError, match=r"data\.mix names \['general'\]"):
        build_dataset(snapshot, options, tokenizer, home=home, objective="sft")
    options = DataOptions(mix={"general": 3})
    short = build_dataset(snapshot, options, tokenizer, home=home, objective="sft", mixed={"general": general})
    reached, wanted = short.mixed["general"]["rows"], 3 * plain.train_rows
    assert short.mixed_shares == [f"general: {reached} of {wanted} rows (all that there are)"] and reached < wanted
    options = DataOptions(mix={"general": 3}, mix_repeat=True)
    full = build_dataset(snapshot, options, tokenizer, home=home, objective="sft", mixed={"general": general})
    times = Counter(row["row"] for row in full.rows("train") if row["row"] not in rows["plain"])
    assert full.mixed["general"] == {"snapshot": general.digest, "rows": wanted, "wanted": wanted}
    assert sum(times.values()) == wanted and max(times.values()) - min(times.values()) <= 1
    assert full.train_rows == plain.train_rows + wanted and full.heldout_rows == plain.heldout_rows


def test_rows_over_length_are_counted_and_beyond_a_share_refused(tmp_path: Path, home: Home, tokenizer: Any) -> None:
    long = edit(0)["diff"] + "+    call()\n" * 300
    records = [
        edit(number, diff=long + f"+# {number}\n" if number % 5 == 0 else edit(number)["diff"]) for number in range(40)
    ]
    snapshot = engineering(tmp_path, home, records)
    options = DataOptions(near_duplicate_similarity=1, max_length=512)
    dataset = build_dataset(snapshot, options, tokenizer, home=home, objective="sft")
    assert dataset.over_length == dataset.rejected["longer than max_length"] == 8
    assert dataset.percentiles["p100"] > 512 >= dataset.percentiles["p50"]
    with pytest.raises(PermanentError, match=r"8 of 40 examples are longer than data.max_length = 512"):
        build_dataset(
            snapshot, options.model_copy(update={"max_over_length_share": 0.1}), tokenizer, home=home, objective="sft"
        )


def test_the_system_prompt_is_counted(tmp_path: Path, home: Home, tokenizer: Any) -> None:
    snapshot = engineering(tmp_path, home, [edit(number) for number in range(20)])
    plain = build_dataset(snapshot, DataOptions(), tokenizer, home=home, objective="sft")
    prompt = "You are the engineer of project demo. " * 5
    options = DataOptions(system_prompt=prompt)
    told = build_dataset(snapshot, options, tokenizer, home=home, objective="sft")
    assert told.rows("train")[0]["prompt"][0] == {"role": "system", "content": prompt}
    assert told.percentiles["p50"] > plain.percentiles["p50"] + 20


def test_a_limit_takes_the_same_rows_again(tmp_path: Path, home: Home, tokenizer: Any) -> None:
    snapshot = engineering(tmp_path, home, [edit(number) for number in range(40)])
    limited = build_dataset(snapshot, DataOptions(max_rows=10), tokenizer, home=home, objective="sft")
    assert limited.train_rows + limited.heldout_rows == 10
    assert limited.heldout_rows >= 1
    more = build_dataset(snapshot, DataOptions(max_rows=20), tokenizer, home=home, objective="sft")
    rows = {name: {row["row"] for row in everything(dataset)} for name, dataset in (("10", limited), ("20", more))}
    assert len(rows["10"] & rows["20"]) >= 9


def test_a_group_keeps_its_side_when_the_corpus_grows(tmp_path: Path, home: Home, tokenizer: Any) -> None:
    sides: dict[str, str] = {}
    for count in (3, 8, 30, 60):
        snapshot = engineering(tmp_path, home, [edit(number) for number in range(count)])
        dataset = build_dataset(snapshot, DataOptions(heldout_share=0.1), tokenizer, home=home, objective="sft")
        for side in ("train", "heldout"):
            for row in dataset.rows(side):  # type: ignore[arg-type]
                assert sides.setdefault(row["group"], side) == side
    assert set(sides.values()) == {"train", "heldout"}


def test_one_group_alone_is_refused(tmp_path: Path, home: Home, tokenizer: Any) -> None:
    records = [apprenticeship(number, session_id="S1") for number in range(60)]
    with pytest.raises(PermanentError, match="60 tuples in 1 groups"):
        build_dataset(pairs(tmp_path, home, records), DataOptions(), tokenizer, home=home, objective="dpo")
    assert not [path for path in home.datasets.iterdir() if not path.name.startswith(".")]


def test_a_killed_process_leaves_nothing_half_written(tmp_path: Path, home: Home, tokenizer: Any) -> None:
    snapshot = engineering(tmp_path, home, [edit(number) for number in range(1500)])
    arguments = {"home": home, "objective": "sft"}
    for _ in range(3):
        process = multiprocessing.get_context("fork").Process(
            target=build_dataset, args=(snapshot, DataOptions(), tokenizer), kwargs=arguments
        )
        process.start()
        before = len(list(home.datasets.glob(".*")))
        while len(list(home.datasets.glob(".*"))) == before:
            time.sleep(0.005)
        time.sleep(random.random() * 0.5)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert not [path for path in home.datasets.glob("*") if not path.name.startswith(".")]
    long_ago = time.time() - 2 * 24 * 3600
    for path in home.datasets.glob(".*"):
        os.utime(path, (long_ago, long_ago))
    dataset = build_dataset(snapshot, DataOptions(), tokenizer, home=home, objective="sft")
    assert [path.name for path in home.datasets.iterdir()] == [dataset.digest]


def test_what_the_chat_template_refuses_is_rejected(tmp_path: Path, home: Home, tokenizer: Any) -> None:
    strict = copy.copy(tokenizer)
    strict.chat_template = (
        "{% for m in messages %}{% if loop.index0 % 2 != (m.role == 'assistant') | int %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}{{ m.content }}{% endfor %}"
    )
    odd = {"prompt": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}], "completion": "c"}
    snapshot = engineering(tmp_path, home, [odd, *(edit(number) for number in range(20))])
    dataset = build_dataset(snapshot, DataOptions(), strict, home=home, objective="sft")
    assert dataset.rejected == {"the chat template refuses its sequence of roles": 1}
    plain = build_dataset(snapshot, DataOptions(), tokenizer, home=home, objective="sft")
    assert plain.rejected == {}


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ValueError, match="extra"):
        DataOptions(max_len=3)  # type: ignore[call-arg]
    assert DataOptions().threshold == 50


def test_the_bundled_sample_gives_two_datasets(project: Path, home: Home, tokenizer: Any) -> None:
    for role, columns in (("engineering", "completion"), ("apprenticeship", "chosen")):
        of = bucket(project / "examples" / "training-corpus", role, "fernhollow")
        snapshot = take_snapshot(of, of.objective, as_of=dt.datetime.now(dt.UTC), home=home)
        assert snapshot.trainable >= 80
        dataset = build_dataset(snapshot, DataOptions(), tokenizer, home=home, objective=of.objective)
        assert dataset.train_rows >= 50 and dataset.heldout_rows >= 10
        assert dataset.leaks == []
        assert columns in dataset.rows("train").column_names
