"""Resolution on gold coreference: names of one person, firm or place in real interviews, news and court papers.

The rules were written on `gum`; documents of `gum-more (seen)` may be looked at, and nothing was fitted to those of
`gum-more (unseen)`, of which only totals are looked at. Each part has floors of its own.
"""

from pathlib import Path

import pytest

from benchmarks.resolution_quality import found_and_true, named, parts


@pytest.mark.parametrize(
    ("part", "least_precision", "least_recall"),
    [("gum (fitted on)", 0.95, 0.4), ("gum-more (seen)", 0.9, 0.3), ("gum-more (unseen)", 0.8, 0.2)],
)
def test_merges_on_gold_coreference_are_right(
    shared_data: Path, part: str, least_precision: float, least_recall: float
) -> None:
    size, found, linked, true = found_and_true({path.name: list(named(path)) for path in parts(shared_data)[part]})
    precision, recall = len(found & true) / len(found), len(found & true) / len(true)
    print(
        f"{part}: {size} entities, {len(true)} true pairs: merged {len(found)}, precision {precision:.2f}, recall "
        f"{recall:.2f}; with the review band recall {len(linked & true) / len(true):.2f}"
    )
    assert precision >= least_precision
    assert recall >= least_recall
