"""A perfect model through our grounding and filters: what rules may cost at most. No model is asked."""

import pytest

from benchmarks import gum, languages, oracle, sample


def test_the_oracle_on_the_sample() -> None:
    assert oracle.grounded((text, oracle.perfect(text)) for text in sample.read())["all"].f1 >= 0.95


@pytest.mark.skipif(not gum.DATA.is_dir(), reason="the public texts are not beside this checkout")
def test_the_oracle_on_public_texts_that_no_rule_was_written_on() -> None:
    table = oracle.grounded((text, oracle.perfect(text)) for text in gum.unseen())
    assert table["all"].f1 >= 0.94
    assert table["any class"].f1 >= 0.96


@pytest.mark.parametrize("language", ["german", "french", "spanish", "chinese", "japanese"])
def test_the_oracle_in_other_languages(language: str) -> None:
    texts = languages.read()[language]
    assert oracle.grounded((text, oracle.perfect(text)) for text in texts)["all"].f1 >= 0.95
