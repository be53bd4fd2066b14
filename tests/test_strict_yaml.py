"""YAML traps: what other loaders hide is an error here, in one line, with the place."""

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from ec1.errors import InputError
from ec1.strict_yaml import load_mapping, parse_mapping, validate


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")

    rate: float
    steps: int = 1


def test_exponents_are_numbers_and_no_is_a_word() -> None:
    assert parse_mapping("rate: 2e-4\nflag: no\n", "x") == {"rate": 0.0002, "flag": "no"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2\n", r'x\.yaml:2: found duplicate key "a"'),
        ("- 1\n", r"x\.yaml: expected 'key: value' lines"),
        ("a: [1\n", r"x\.yaml:\d"),
        ("a: !!python/object/apply:os.system ['true']\n", r"x\.yaml"),
        ("b: 1\na: &a [1, {c: *a}]\n", r"x\.yaml:2: the anchor &a holds itself"),
        ("a: &a\n  <<: *a\n", r"x\.yaml:1: the anchor &a holds itself"),
        ("a: 2026-02-30\n", r"x\.yaml: day is out of range"),
        ("a: !!float x\n", r"x\.yaml: could not convert"),
        ("a: " + "[" * 3000, r"x\.yaml: lists or mappings stand in one another too deep"),
    ],
)
def test_bad_yaml_is_one_line_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        parse_mapping(text, "x.yaml")
    assert "\n" not in str(caught.value)


def test_an_anchor_may_be_used_often() -> None:
    assert parse_mapping("a: &a {b: [1]}\nc: *a\nd: {<<: *a, e: 2}\n", "x")["d"] == {"b": [1], "e": 2}


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.yaml does not exist"):
        load_mapping(tmp_path / "nothing.yaml")


def test_every_problem_is_reported_at_once() -> None:
    with pytest.raises(InputError) as caught:
        validate(Model, {"rate": "fast", "stepz": 3}, "r.yaml")
    text = str(caught.value)
    assert text.startswith("r.yaml: ")
    assert "rate: input should be a valid number" in text and "'fast'" in text
    assert "stepz: unknown key" in text
    assert "\n" not in text
