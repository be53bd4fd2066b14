"""Where a text is cut, with the small model's real tokenizer."""

import itertools
import random
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ec1.documents.chunks import Chunk, chunk_text, sentence_at
from ec1.errors import InputError

Counter = Callable[[Sequence[str]], list[int]]


@pytest.fixture(scope="module")
def count(small_model: Path) -> Counter:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(small_model / "tokenizer.json"))
    tokenizer.no_truncation()
    return lambda texts: [len(found.ids) for found in tokenizer.encode_batch(list(texts), add_special_tokens=False)]


def words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def check(text: str, chunks: list[Chunk], count: Counter, max_tokens: int) -> None:
    """What holds for any text."""
    covered = 0
    for index, chunk in enumerate(chunks):
        assert chunk.index == index
        assert text[chunk.start : chunk.end] == chunk.text == chunk.text.strip() != ""
        assert not text[covered : chunk.start].strip(), "a gap"
        assert chunk.end > covered, "no progress"
        covered = chunk.end
    assert not text[covered:].strip(), "the end is missing"
    assert all(tokens <= max_tokens for tokens in count([chunk.text for chunk in chunks]) or [0])


def test_a_short_text_is_one_chunk(count: Counter) -> None:
    assert chunk_text("  One. Two.\n", count, max_tokens=50, overlap_tokens=5) == [Chunk(0, 2, 11, "One. Two.")]
    assert chunk_text(" \n\t", count, max_tokens=50, overlap_tokens=5) == []


def test_paragraph_before_sentence_before_line_before_word() -> None:
    def cut(text: str) -> str:
        return chunk_text(text, words, max_tokens=10, overlap_tokens=0)[0].text

    assert cut("a b c d e. F g h\n\ni. J\nk l m n") == "a b c d e. F g h"
    assert cut("a b c d e f. G h\ni j k l m n") == "a b c d e f."
    assert cut("a b c d e f g h\ni j k l m n") == "a b c d e f g h"
    assert cut("a.\n\nb c d e f g h i j k l. m n").startswith("a.\n\nb"), "a paragraph's end too early is passed over"


def test_overlap_is_whole_sentences() -> None:
    text = " ".join(f"Maria number {n} met Jo in Vancouver on day {n}." for n in range(40))
    chunks = chunk_text(text, words, max_tokens=50, overlap_tokens=20)
    check(text, chunks, words, 50)
    for before, after in itertools.pairwise(chunks):
        shared = text[after.start : before.end]
        assert shared.startswith("Maria number") and shared.endswith(".")
        assert 9 <= len(shared.split()) <= 20


def test_no_overlap_when_the_last_sentence_is_too_long_for_it() -> None:
    text = " ".join(f"S{n} " + "word " * 28 + "end." for n in range(10))
    chunks = chunk_text(text, words, max_tokens=40, overlap_tokens=10)
    check(text, chunks, words, 40)
    assert all(chunk.text.startswith("S") and chunk.text.endswith("end.") for chunk in chunks)


def test_a_cut_inside_a_sentence_repeats_its_last_words() -> None:
    text = " ".join(f"w{n}" for n in range(500))
    chunks = chunk_text(text, words, max_tokens=100, overlap_tokens=40)
    check(text, chunks, words, 100)
    assert all(after.start < before.end for before, after in itertools.pairwise(chunks))


@pytest.mark.parametrize(
    "name", ["Dr. Jane A. Smith", "Acme Inc. Holdings", "U.S. Steel", "St. Mary", "Smith, Jones et al. Partners"]
)
def test_a_full_stop_in_a_name_ends_no_sentence(name: str) -> None:
    first = "Here is one sentence of ten words at its end."
    text = f"{first} Then {name} spoke for a long time about the new office."
    chunks = chunk_text(text, words, max_tokens=16, overlap_tokens=0)
    assert chunks[0].text == first
    assert name in chunks[1].text


@pytest.mark.parametrize(
    "cluster", ["e\u0301", "👩\u200d🚀", "🇨🇦", "👍🏽", "한", "क\u094d\u0937\u093f", "ü\u0308\u0323"]
)
def test_what_is_seen_as_one_character_stays_whole(cluster: str, count: Counter) -> None:
    text = cluster * 400
    chunks = chunk_text(text, count, max_tokens=40, overlap_tokens=8)
    check(text, chunks, count, 40)
    length = len(cluster)
    assert all(chunk.start % length == 0 and chunk.end % length == 0 for chunk in chunks)


def test_a_cluster_too_large_for_any_chunk_is_cut_between_code_points(count: Counter) -> None:
    text = "a" + "\u0301" * 500
    check(text, chunk_text(text, count, max_tokens=20, overlap_tokens=4), count, 20)


@pytest.mark.parametrize("kind", ["letters", "spaces", "random", "flags", "newlines", "dots", "chinese"])
def test_a_megabyte_in_one_line(kind: str, count: Counter) -> None:
    size = 2**20 if kind in ("letters", "spaces") else 2**17
    chooser = random.Random(5)
    text = {
        "letters": lambda: "abcdefgh" * (size // 8),
        "spaces": lambda: " " * size + "x",
        "random": lambda: "".join(chooser.choices("abcXYZ0189-_/+", k=size)),
        "flags": lambda: "🇨🇦" * (size // 8),
        "newlines": lambda: "x\n\n" * (size // 3),
        "dots": lambda: ". " * (size // 2),
        "chinese": lambda: "他们在上海见面。" * (size // 24),
    }[kind]()
    check(text, chunk_text(text, count, max_tokens=400, overlap_tokens=40), count, 400)


def test_work_is_linear_in_the_text(count: Counter) -> None:
    """Counted in characters given to the tokenizer, so that a slow machine does not matter."""
    for text in ("The quick brown fox met Jo. " * 4000, "abcdefgh" * 12_000, "word " * 20_000):
        asked = 0

        def counted(texts: Sequence[str]) -> list[int]:
            nonlocal asked
            asked += sum(map(len, texts))
            return count(texts)

        chunk_text(text, counted, max_tokens=300, overlap_tokens=30)
        assert asked < 12 * len(text)


def test_batches_are_bounded() -> None:
    largest = 0

    def counted(texts: Sequence[str]) -> list[int]:
        nonlocal largest
        largest = max(largest, sum(map(len, texts)))
        return words(texts)

    chunk_text("The quick brown fox. " * 50_000, counted, max_tokens=300, overlap_tokens=30)
    assert 0 < largest < 2**19


def test_a_tokenizer_that_needs_more_for_the_whole_than_for_its_parts() -> None:
    def odd(texts: Sequence[str]) -> list[int]:
        return [len(text.split()) + (5 if len(text) > 60 else 0) for text in texts]

    text = "aa bb cc dd. " * 100
    check(text, chunk_text(text, odd, max_tokens=20, overlap_tokens=4), odd, 20)


def test_the_same_text_gives_the_same_chunks(count: Counter) -> None:
    text = "One two three. Four five.\n\nSix seven eight nine ten. " * 200
    first = chunk_text(text, count, max_tokens=64, overlap_tokens=16)
    assert first == chunk_text(text, count, max_tokens=64, overlap_tokens=16)


def test_settings_that_cannot_work() -> None:
    with pytest.raises(InputError, match="overlap_tokens"):
        chunk_text("a", words, max_tokens=5, overlap_tokens=5)
    with pytest.raises(InputError, match="one character"):
        chunk_text("𝕏" * 9, lambda texts: [4 * len(text) for text in texts], max_tokens=3, overlap_tokens=0)


ALPHABET = st.sampled_from("aZ9 .!?\n\t\"')。\u0301\u200d🇨👩é中\u00a0")


@given(
    st.text(alphabet=ALPHABET, max_size=400) | st.text(max_size=200),
    st.integers(5, 40),
    st.integers(0, 4),
)
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_covered(count: Counter, text: str, max_tokens: int, overlap: int) -> None:
    text = "".join(character for character in text if unicodedata.category(character) != "Cs")
    check(text, chunk_text(text, count, max_tokens=max_tokens, overlap_tokens=overlap), count, max_tokens)


def test_a_chunk_is_never_only_the_overlap_of_the_one_before() -> None:
    text = "? 。 9\u030199"
    chunks = chunk_text(text, lambda texts: [len(each.encode()) for each in texts], max_tokens=5, overlap_tokens=4)
    assert all(later.end > earlier.end for earlier, later in itertools.pairwise(chunks))


@pytest.mark.parametrize(
    ("text", "name", "sentence"),
    [
        ("It rained. Dr. Anna Berg left. Then quiet.", "Anna Berg", "Dr. Anna Berg left."),
        ("She met Anna\nBerg in Oslo.\n\nNext.", "Anna\nBerg", "She met Anna\nBerg in Oslo."),
        ("Here Anna Berg\nspoke at length.\nBEN: Yes", "Anna Berg", "Here Anna Berg\nspoke at length."),
        ("ANNA: One\nBEN: Two\nANNA: Three", "BEN", "BEN: Two"),
        ("Anna Berg", "Anna Berg", "Anna Berg"),
    ],
)
def test_the_sentence_around_a_name(text: str, name: str, sentence: str) -> None:
    start, end = sentence_at(text, text.index(name), text.index(name) + len(name))
    assert text[start:end] == sentence


def test_a_sentence_of_a_megabyte_is_cut_around_the_name() -> None:
    text = "word " * 100_000 + "Anna Berg " + "word " * 100_000
    at = text.index("Anna")
    start, end = sentence_at(text, at, at + 9)
    assert start < at < end and end - start < 1000
