"""What is found in the fields of contact records, on FEBRL: each row as the JSON of a contact, with no model.

Printed for each set: records with a full name, how many of them give exactly that person, how many names are given
at all, and how many of the facts (address, date of birth, identifier) are. Names have capitals here, as in real
records; FEBRL writes all in small letters. The keys of FEBRL were known when the lists of keys were written, so this
shows that nothing is lost on the way, and not how well other keys are known.
"""

import argparse
import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gum import DATA
from ec1.documents.fields import FACTS
from ec1.documents.ledger import DocumentKey
from ec1.documents.parse import parse_document
from ec1.extraction.folding import normalised
from ec1.extraction.reading import fields


@dataclass
class Found:
    """Counts over one set."""

    records: int = 0
    persons: int = 0
    names: int = 0
    facts: int = 0
    wanted: int = 0


def rows_of(path: Path) -> Iterator[dict[str, str]]:
    """The rows with a given name and a surname, without what is empty."""
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file, skipinitialspace=True):
            filled = {key.strip(): value.strip() for key, value in row.items() if value and value.strip()}
            if {"given_name", "surname"} <= filled.keys():
                yield filled


def measure(path: Path) -> Found:
    """Put each row into a contact file, read it, and count."""
    found = Found()
    for row in rows_of(path):
        record = {key: value.title() if "name" in key else value for key, value in row.items() if key != "rec_id"}
        data = json.dumps({**record, "body": "Filed."}).encode()
        document = parse_document(DocumentKey("contact", "a.json"), data)
        mentions = fields.mentions_in(document.text, document.fields_end)
        kinds = {each.kind for each in fields.traits_in(document.text, document.fields_end)}
        wanted = {kind for kind, keys in FACTS.items() if keys & row.keys()}
        person = (normalised(f"{row['given_name']} {row['surname']}"), "Person")
        found.records += 1
        found.persons += person in {(normalised(each.name), each.entity_class) for each in mentions}
        found.names += len(mentions)
        found.facts += len(wanted & kinds)
        found.wanted += len(wanted)
    return found


def main() -> dict[str, Found]:
    """Print and return the figures of the sets that are there."""
    figures = {}
    for path in sorted((DATA / "febrl").glob("*.csv")):
        found = figures[path.stem] = measure(path)
        print(
            f"{path.stem}: {found.records} records, person right {found.persons}, names given {found.names}, "
            f"facts {found.facts} of {found.wanted}"
        )
    return figures


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
