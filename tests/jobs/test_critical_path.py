"""The picture of a night: which step waited for which, what it did, and whose CPU seconds count."""

from benchmarks.critical_path import Stage, Step, _at, _stages, as_svg, critical_path


def step(key: str, began: float, ended: float, *needs: str) -> Step:
    return Step(key, began, ended, set(needs), stages=[Stage("work", key, began, ended)])


def test_a_step_waited_for_what_it_needs_or_for_the_card() -> None:
    reading, handover = step("reading", 0, 50), step("handover", 51, 52, "reading")
    early = step("dataset", 0, 10)
    first = step("first__adapter_candidate", 53, 90, "handover", "dataset")
    second = step("second__adapter_candidate", 91, 120, "handover", "dataset")
    line = critical_path([reading, early, handover, first, second])
    # The second one was ready with the first: it waited until that gave the card back.
    assert [each.key for each in line] == [each.key for each in (reading, handover, first, second)]
    picture = as_svg([reading, early, handover, first, second], line, 120)
    assert picture.count('stroke="#b3261e"') == len(line) + 1, "each of the line, and the legend"


def test_what_a_step_told_divides_its_time() -> None:
    told = [(2.0, "[pipes] external process successfully opened dagster pipes."), (8.0, "loading a/b"), (9.0, "step 1")]
    told += [(11.0, "loaded in 3 s; 4 steps"), (12.0, "step 1 of 4: loss 2.0")]
    found = [(each.name, each.ended - each.began) for each in _stages(Step("x__adapter_candidate", 1, 20, set()), told)]
    assert found == [
        ("before", 1),
        ("libraries are imported", 6),
        ("model and rows are loaded", 3),
        ("training", 9),
    ]
    judged = _stages(Step("x__evaluation", 1, 20, set()), [told[0], (4.0, "loaded main and 1 adapters in 2.0 s")])
    assert [each.name for each in judged] == ["libraries are imported", "model is loaded", "scoring"]


def test_cpu_seconds_between_two_samples() -> None:
    samples = [(10.0, 1.0), (12.0, 3.0)]
    assert [_at(samples, at) for at in (9.0, 10.0, 11.0, 12.0, 99.0)] == [0, 1, 2, 3, 3]
