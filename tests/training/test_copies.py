"""Copies that a training keeps on its way: what they are, and that the training is the same without them."""

from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file
from small_trainings import HELD_OUT, losses, run

from ec1.errors import InputError
from ec1.training.copies import STEPS, answers_on_the_way, step_folder, steps_of
from ec1.training.repeatable import WEIGHTS
from ec1.training.spec import TrainingSpec


@pytest.mark.slow
def test_copies_are_kept_with_answers_and_change_nothing(make: Callable[..., TrainingSpec], tmp_path: Path) -> None:
    # With dropout: a draw more or less would show.
    shape = {"r": 4, "target_modules": ["q_proj", "v_proj"], "dropout": 0.2}
    plain = make("engineering", tmp_path / "plain", lora=shape)
    keeping = make("engineering", tmp_path / "keeping", lora=shape, optimisation={"keep_steps": 2})
    assert keeping.recipe.digest() == plain.recipe.digest(), "a finished training is not repeated for it"
    for spec in (plain, keeping):
        run(spec)
    assert losses(plain) == losses(keeping)
    ours, theirs = (load_file(each.output / "adapter" / WEIGHTS) for each in (plain, keeping))
    assert all(bool((ours[name] == theirs[name]).all()) for name in ours)
    assert steps_of(plain.output) == [] and steps_of(keeping.output) == [2, 4, 6]
    last = load_file(step_folder(keeping.output, 6) / WEIGHTS)
    first = load_file(step_folder(keeping.output, 2) / WEIGHTS)
    assert all(bool((last[name] == theirs[name]).all()) for name in theirs)
    assert any(bool((first[name] != theirs[name]).any()) for name in theirs)
    answers = answers_on_the_way(keeping.output)
    assert list(answers) == [2, 4, 6]
    for said in answers.values():
        assert [each["prompt"] for each in said] == [
            f"Say {word} {'again ' * (n % 3)}please." for n, word in enumerate(HELD_OUT)
        ]
        assert all(each["expected"].startswith("The word is") for each in said)
    (keeping.output / STEPS / "step-2" / WEIGHTS).write_bytes(b"damaged")
    with pytest.raises(InputError, match="no whole copy of step 2"):
        step_folder(keeping.output, 2)


def test_copies_are_of_an_adapter(make: Callable[..., TrainingSpec], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep_steps keeps copies of an adapter"):
        make("engineering", tmp_path, method="full", optimisation={"keep_steps": 2})
