"""No kind of file costs names: with perfect answers the sample scores as PDF, Word, mail and HTML as it does as
Markdown."""

import pytest

from benchmarks.format_quality import markdown_of_the_sample, perfect


@pytest.mark.slow
def test_the_sample_in_each_kind_scores_as_its_markdown() -> None:
    found = perfect(markdown_of_the_sample())
    assert found[".md"] > 0.95
    assert min(found.values()) >= found[".md"] - 0.02, found
