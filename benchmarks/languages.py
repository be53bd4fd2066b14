"""Strict and any-class F1 in other languages, in each mode of the shipped extractor, beside base line and oracle.

The texts of `languages.jsonl` were written for this, with invented names, and nothing was fitted to them: minutes,
letters and news in German, French, Spanish, Chinese and Japanese. They are few: look at the intervals. Not the
templates of `examples/extractor`, which are trained on.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import oracle
from benchmarks._engine import embedded, forget, model_of, serving
from benchmarks.extraction_quality import MODES, Mode, extract, extractor_of, shipped
from benchmarks.gum import Text
from ec1.extraction.folding import normalised
from ec1.extraction.reading.openai import OpenAIClient
from ec1.extraction.scoring import ScoreTable

TEXTS = Path(__file__).with_name("languages.jsonl")


def read() -> dict[str, list[Text]]:
    """The texts of each language."""
    found: dict[str, list[Text]] = {}
    for line in TEXTS.read_text(encoding="utf-8").splitlines():
        value = json.loads(line)
        gold = frozenset((normalised(each["name"]), each["class"]) for each in value["entities"])
        found.setdefault(value["language"], []).append(Text(value["name"], value["text"], (), gold))
    return found


def shown(table: ScoreTable) -> str:
    """F1 in one line: strict with its interval, then any class."""
    strict = table["all"]
    return f"{strict.f1:.2f} ({strict.interval[0]:.2f}-{strict.interval[1]:.2f}), any class {table['any class'].f1:.2f}"


def main(modes: Sequence[Mode] = MODES) -> dict[str, dict[str, ScoreTable]]:
    """Print and return the tables by language and what read."""
    deployment, settings = embedded()
    adapter, texts = shipped(), read()
    tables: dict[str, dict[str, ScoreTable]] = {language: {} for language in texts}
    for language, each in texts.items():
        tables[language]["oracle"] = oracle.grounded((text, oracle.perfect(text)) for text in each)
    with tempfile.TemporaryDirectory() as scratch:
        model = model_of(deployment, Path(scratch))
        with serving(deployment, settings, model, adapter) as endpoint:
            for mode in modes:
                extractor = extractor_of(mode, model, adapter=adapter)
                for language, each in texts.items():
                    forget(endpoint)
                    client = OpenAIClient(
                        endpoint.base_url, endpoint.model, deployment.extraction, ends_repetition=True
                    )
                    table = extract(each, extractor, client).table
                    tables[language][mode] = table
                    assert table.baseline is not None
                    tables[language]["base line"] = table.baseline
    for language, found in tables.items():
        print(f"\n{language}, {len(texts[language])} texts")
        for what, table in found.items():
            print(f"  {what:<10}{shown(table)}")
    return tables


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    main(parser.parse_args().modes)
