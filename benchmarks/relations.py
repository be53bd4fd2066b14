"""Precision and recall of the relations that documents state, over the bundled sample, with the embedded model.

`relations.jsonl` has what each document states of the contract's relations, written by hand. A found one
is right if the document's gold has it, names being taken as the gold of entities joins them, and a place without what
follows its first comma. The model is the base: the shipped extractor is trained for entities alone.

Run: python -m benchmarks.relations [--only 4]
"""

import argparse
import json
import math
import tempfile
from pathlib import Path

from benchmarks import sample
from benchmarks._engine import embedded, model_of, serving
from benchmarks.extraction_quality import extract, extractor_of
from ec1.extraction.folding import normalised
from ec1.extraction.reading.openai import OpenAIClient

GOLD = Path(__file__).with_name("relations.jsonl")
Stated = tuple[str, str, str]


def gold() -> dict[str, set[Stated]]:
    """By document. Raises KeyError for a name that the gold of entities does not have."""
    names = joined()
    found = {}
    for row in map(json.loads, GOLD.read_text().splitlines()):
        known = names[row["path"]]
        found[row["path"]] = {
            (known[normalised(subject)], relation, known[normalised(target)])
            for subject, relation, target in row["relations"]
        }
    return found


def joined() -> dict[str, dict[str, str]]:
    """By document: which name stands for each of its names."""
    found = {}
    for row in map(json.loads, sample.GOLD.read_text().splitlines()):
        found[row["path"]] = {
            normalised(each["name"]): _short(each.get("same_as", each["name"]), each["class"])
            for each in row["entities"]
        }
    return found


def _short(name: str, entity_class: str) -> str:
    return normalised(name.split(",")[0] if entity_class == "Location" else name)


def interval(right: int, of: int) -> str:
    """Wilson's, of 95 %."""
    if not of:
        return "none"
    share, z = right / of, 1.96
    middle, half = share + z * z / (2 * of), z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    low, high = ((middle + sign * half) / (1 + z * z / of) for sign in (-1, 1))
    return f"{share:.2f} ({low:.2f} to {high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=int, default=0, help="so many documents; 0: all")
    arguments = parser.parse_args()
    texts = sample.read()
    texts = texts[: arguments.only or len(texts)]
    wanted, names = gold(), joined()
    deployment, settings = embedded()
    with tempfile.TemporaryDirectory() as folder:
        model = model_of(deployment, Path(folder))
        extractor = extractor_of("both", model, relations=True)
        with serving(deployment, settings, model) as endpoint:
            client = OpenAIClient(endpoint.base_url, endpoint.model, extractor.settings)
            run = extract(texts, extractor, client)
    found, right, true = 0, 0, 0
    for text in texts:
        known = names[text.name]
        result = run.results.get(text.name)
        stated = {
            (
                known.get(normalised(each.subject), _short(each.subject, each.subject_class)),
                each.relation,
                known.get(normalised(each.object), _short(each.object, each.object_class)),
            )
            for each in (result.relations if result else ())
        }
        for each in sorted(stated - wanted[text.name]):
            print(f"  wrong: {text.name.rpartition('/')[2]}: {' '.join(each)}")
        found, right, true = (
            found + len(stated), right + len(stated & wanted[text.name]), true + len(wanted[text.name])
        )  # fmt: skip
    print(
        f"{len(texts)} documents, {true} relations, {found} found, {right} right: "
        f"precision {interval(right, found)}, recall {interval(right, true)}"
    )


if __name__ == "__main__":
    main()
