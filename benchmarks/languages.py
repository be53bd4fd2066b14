"""Strict and any-class F1 in other languages, in each mode of the shipped extractor, beside base line and oracle.

The texts of `languages.jsonl` were written for this, with invented names, and nothing was fitted to them: minutes,
letters and news in German, French, Spanish, Chinese and Japanese. They are few: look at the intervals. Not the
templates of `examples/extractor`, which are trained on. Japanese is shown twice: as the model reads it, and the
dictionary (`extraction.japanese`).

`--wikipedia FILE` adds sentences of Japanese Wikipedia: `ner.json` of
https://github.com/stockmarkteam/ner-wikipedia-dataset (CC BY-SA 3.0; not bundled), those of odd number, since the words
that end names in the dictionary's reading were chosen on the others. `--news FILE` adds those of news and blogs:
`ja_gsd-ud-test.ne.conllu` of https://github.com/megagonlabs/UD_Japanese-GSD (CC BY-SA 4.0; not bundled), which nothing
was fitted to. Products, events and works of either are no entities here.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import gum, oracle
from benchmarks._engine import embedded, forget, model_of, serving
from benchmarks.extraction_quality import MODES, Mode, extract, extractor_of, shipped
from benchmarks.gum import Text
from ec1.extraction.folding import normalised
from ec1.extraction.reading.openai import OpenAIClient
from ec1.extraction.scoring import ScoreTable

TEXTS = Path(__file__).with_name("languages.jsonl")
# As in `ordinary_languages`: of a single sentence nobody can say whether it stands out as one for a machine.
_TOGETHER = 15
_CLASSES = {
    "人名": "Person",
    "法人名": "Company",
    "政治的組織名": "Company",
    "その他の組織名": "Company",
    "地名": "Location",
    "施設名": "Location",
    "PERSON": "Person",
    "ORG": "Company",
    "GPE": "Location",
    "LOC": "Location",
    "FAC": "Location",
}


def read() -> dict[str, list[Text]]:
    """The texts of each language."""
    found: dict[str, list[Text]] = {}
    for line in TEXTS.read_text(encoding="utf-8").splitlines():
        value = json.loads(line)
        gold = frozenset((normalised(each["name"]), each["class"]) for each in value["entities"])
        found.setdefault(value["language"], []).append(Text(value["name"], value["text"], (), gold))
    return found


def wikipedia(file: Path, number: int) -> list[Text]:
    """So many texts of `_TOGETHER` sentences each, of those of odd number."""
    rows = json.loads(file.read_text(encoding="utf-8"))[1::2]
    found = []
    for text in range(number):
        those = rows[text::number][:_TOGETHER]
        entities = [each for row in those for each in row["entities"] if each["type"] in _CLASSES]
        gold = frozenset((normalised(each["name"]), _CLASSES[each["type"]]) for each in entities)
        found.append(Text(f"wikipedia-{text}", "\n".join(row["text"] for row in those), (), gold))
    return found


def news(file: Path) -> list[Text]:
    """Texts of `_TOGETHER` sentences of a file in CoNLL-U that marks names as `NE=B-PERSON` in its last column."""
    rows = [(text, list(_marked(tokens))) for text, tokens in gum.parsed(file, "NE")]
    together = [rows[at : at + _TOGETHER] for at in range(0, len(rows), _TOGETHER)]
    return [
        Text(
            f"news-{number}",
            "\n".join(text for text, _ in those),
            (),
            frozenset(each for _, names in those for each in names),
        )
        for number, those in enumerate(together)
    ]


def _marked(tokens: Sequence[gum.Token]) -> Iterator[tuple[str, str]]:
    """The names of our classes in a sentence, each with its class: beginning, inside, last, or a unit of one token."""
    name = ""
    for token in tokens:
        place, _, kind = token.entity.partition("-")
        name = token.form if place in ("B", "U") else name + token.form
        if place in ("L", "U") and kind in _CLASSES:
            yield normalised(name), _CLASSES[kind]


def shown(table: ScoreTable) -> str:
    """F1 in one line: strict with its interval, then any class."""
    strict = table["all"]
    return f"{strict.f1:.2f} ({strict.interval[0]:.2f}-{strict.interval[1]:.2f}), any class {table['any class'].f1:.2f}"


def main(
    modes: Sequence[Mode] = MODES, only: str = "", further: Mapping[str, Sequence[Text]] | None = None
) -> dict[str, dict[str, ScoreTable]]:
    """Print and return the tables by language and what read."""
    deployment, settings = embedded()
    adapter = shipped()
    texts = {language: each for language, each in {**read(), **(further or {})}.items() if only in language}
    tables: dict[str, dict[str, ScoreTable]] = {language: {} for language in texts}
    for language, each in texts.items():
        tables[language]["oracle"] = oracle.grounded((text, oracle.perfect(text)) for text in each)
    with tempfile.TemporaryDirectory() as scratch:
        model = model_of(deployment, Path(scratch))
        with serving(deployment, settings, model, adapter) as endpoint:
            for language, each in texts.items():
                # Which mode it is says nothing of what the dictionary reads.
                by_dictionary = [("dictionary", modes[0])] * language.startswith("japanese")
                for reader, mode in [*(("model", mode) for mode in modes), *by_dictionary]:
                    forget(endpoint)
                    client = OpenAIClient(
                        endpoint.base_url, endpoint.model, deployment.extraction, ends_repetition=True
                    )
                    extractor = extractor_of(mode, model, adapter=adapter, japanese=reader)
                    table = extract(each, extractor, client).table
                    tables[language][mode if reader == "model" else reader] = table
                    assert table.baseline is not None
                    tables[language]["base line"] = table.baseline
    for language, found in tables.items():
        print(f"\n{language}, {len(texts[language])} texts")
        for what, table in found.items():
            print(f"  {what:<12}{shown(table)}")
    return tables


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--only", default="", metavar="LANGUAGE", help="only languages with this in their name")
    parser.add_argument("--wikipedia", type=Path, metavar="FILE", help="further texts in Japanese, see above")
    parser.add_argument("--number", type=int, default=20, help="how many texts of those (default: 20)")
    parser.add_argument("--news", type=Path, metavar="FILE", help="further texts in Japanese, see above")
    given = parser.parse_args()
    more: dict[str, list[Text]] = {}
    if given.wikipedia:
        more["japanese wikipedia"] = wikipedia(given.wikipedia, given.number)
    if given.news:
        more["japanese news"] = news(given.news)
    main(given.modes, given.only, more)
