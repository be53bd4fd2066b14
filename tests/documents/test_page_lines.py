"""A page's lines become the paragraphs that its author wrote: names stay whole, and lists stay lists."""

from collections.abc import Callable

import fpdf
import pytest

from ec1.documents.converter_process import _pdf
from ec1.documents.page_lines import paragraphs

PROSE = (
    "The board of Baltic Timber met in Riga on Monday. Ruth Haldane opened, and José Carreras of Harbour Lines spoke "
    "about the new hall, which is dearer than was thought in May. Nobody could say when it will be ready."
)


def read(write: Callable[[fpdf.FPDF], object]) -> str:
    """The text of a page that is written so."""
    page = fpdf.FPDF()
    page.set_font("Times", size=11)
    page.add_page()
    write(page)
    _, ((_, text),) = _pdf(bytes(page.output()), 10, ())
    return text


def lines(*text: str) -> str:
    def write(page: fpdf.FPDF) -> None:
        for each in text:
            page.cell(0, 6, each, new_x="LMARGIN", new_y="NEXT")

    return read(write)


def test_paragraphs_are_told_apart_as_their_author_did() -> None:
    text = "\n".join(("Minutes", PROSE, PROSE, "Ann Lee", "Bo Wu"))
    assert read(lambda page: page.multi_cell(0, 6, text)) == f"Minutes\n\n{PROSE}\n\n{PROSE}\n\nAnn Lee\nBo Wu"


def test_a_narrow_column_beside_a_wide_one_has_whole_sentences() -> None:
    def write(page: fpdf.FPDF) -> None:
        for width in (0, 60):
            page.multi_cell(width, 6, " ".join([PROSE] * 4), align="L", new_x="LMARGIN")

    narrow = read(write).partition(" ".join([PROSE] * 4))[2]
    assert len(narrow) > 700
    # Only the first lines of a column have wide ones around them.
    assert len(narrow.split("\n")) <= 12


def test_a_name_that_the_page_broke_is_whole_where_every_line_begins_with_a_capital() -> None:
    text = "Ruth Haldane of Baltic Timber met José Carreras in Riga. " * 6
    assert read(lambda page: page.multi_cell(0, 6, text)) == text.strip()


def test_lines_of_a_list_stay_apart_however_alike_their_lengths() -> None:
    people = ("Ruth Haldane, Baltic Timber", "Ines Duarte, Harbour Lines", "Ann Lee, Kestrel Telematics", "Bo Wu, Oslo")
    assert lines(*people) == "\n".join(people)


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ("The chair was Anna Smith-", "Jones of Riga, as always.", "Anna Smith-Jones of Riga"),
        ("They met in the harbour of Balti-", "more at eight in the morning.", "of Baltimore at eight"),
        ("They read the paper of 2020-", "2021 and nothing else.", "of 2020-2021 and"),
    ],
)
def test_a_hyphen_at_a_lines_end_is_a_names_or_the_pages(before: str, after: str, text: str) -> None:
    assert text in lines(before, after)


def test_scripts_without_spaces_get_none() -> None:
    assert (
        paragraphs("株式会社山田商店の田中太\r\n郎さんは東京で会いました。")
        == "株式会社山田商店の田中太郎さんは東京で会いました。"
    )


def test_a_sentence_that_a_short_line_leaves_open_is_not_cut_by_a_blank_line() -> None:
    text = f"{PROSE}\nIt is known\nto all of them."
    assert "It is known\nto all of them." in read(lambda page: page.multi_cell(0, 6, text))


@pytest.mark.parametrize("page", ["", "\r\n", "\x02", "a", "a\x02", "\x02b"])
def test_a_page_of_next_to_nothing(page: str) -> None:
    assert paragraphs(page) == page.replace("\x02", "-").strip()
