"""What a lexicon scores, with no model: the names that `compromise` (a JavaScript library of words and rules for
English) finds in the texts that `trained_extractor` reads, beside the base line of capital letters.

Its people are Person, its organisations Company, its places Location; it knows no projects and no accounts. Needs
`node` and `npm`: the library is installed into a folder that is removed afterwards.
"""

import argparse
import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import gum, organisations, sample
from ec1.documents.ledger import DocumentKey
from ec1.extraction.folding import normalised
from ec1.extraction.naming import baseline
from ec1.extraction.scoring import ScoreTable, score

PACKAGE = "compromise@14.17.0"
_FIND = """
const nlp = require("compromise");
const texts = JSON.parse(require("fs").readFileSync(0, "utf-8"));
const named = (found, entityClass) => found.out("array").map((name) => [name, entityClass]);
console.log(JSON.stringify(texts.map((text) => {
  const read = nlp(text);
  return [
    ...named(read.people(), "Person"), ...named(read.organizations(), "Company"), ...named(read.places(), "Location"),
  ];
})));
"""
_AROUND = " \t\n.,;:!?\"'“”‘’()[]*_#>-"


def names_of(texts: Sequence[str], folder: Path) -> list[frozenset[tuple[str, str]]]:
    """What the lexicon finds in each text: (normalised name, class). `folder` gets the library."""
    subprocess.run(
        ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", PACKAGE], cwd=folder, check=True
    )
    said = subprocess.run(
        ["node", "-e", _FIND], cwd=folder, input=json.dumps(texts), capture_output=True, text=True, check=True
    )
    return [
        frozenset((_clean(name), each) for name, each in found if _clean(name)) for found in json.loads(said.stdout)
    ]


def _clean(name: str) -> str:
    return normalised(name.strip(_AROUND).removesuffix("'s").removesuffix("’s"))


def main() -> dict[str, ScoreTable]:
    """Print and return the tables of the sets that are there, or nothing where there is no `npm`."""
    if shutil.which("npm") is None:
        print("there is no npm on this machine, which installs the lexicon: nothing was measured")
        return {}
    sets = {"GUM unseen": gum.unseen(), "organisations": organisations.unseen(), "sample": sample.read()}
    tables = {}
    for title, texts in sets.items():
        if not texts:
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = names_of([text.text for text in texts], Path(folder))
        keys = [DocumentKey("research", text.name) for text in texts]
        gold = {key: text.gold for key, text in zip(keys, texts, strict=True)}
        plain = score({key: baseline.names_of(text.text) for key, text in zip(keys, texts, strict=True)}, gold)
        tables[title] = replace(score(dict(zip(keys, found, strict=True)), gold), baseline=plain)
        print(f"\n{title}, the lexicon: {len(texts)} documents\n{tables[title]}", flush=True)
    return tables


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
