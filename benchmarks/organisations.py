"""Documents of invented organisations with all five classes marked: records, letters, minutes, reports, talk.

They were written for this from a page of rules on what counts as a name. Those of `organisations.jsonl` are unseen:
nothing was fitted to them, their writer saw none of the code and of the bundled sample, and nobody reads their errors,
only totals. The shipped extractor learns from others (`examples/extractor/documents.jsonl`), of which some are by the
same writer. No benchmark itself.
"""

import json
from pathlib import Path

from benchmarks.gum import Named, Text
from ec1.extraction.folding import normalised
from ec1.home import CHECKOUT

LEARNT = CHECKOUT / "examples" / "extractor" / "documents.jsonl"


def learnt() -> list[Text]:
    """The documents that the shipped extractor learns from."""
    return read(LEARNT)


def unseen() -> list[Text]:
    """The documents that only totals may be taken of."""
    return read(Path(__file__).with_name("organisations.jsonl"))


def read(path: Path) -> list[Text]:
    """The texts of a file of JSON lines: `name`, `text`, and `mentions` (`name`, `class`, `start`, `end`)."""
    found = []
    for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        mentions = tuple(Named(each["name"], each["class"], each["start"], each["end"]) for each in row["mentions"])
        gold = frozenset((normalised(each.name), each.entity_class) for each in mentions)
        found.append(Text(row["name"], row["text"], mentions, gold))
    return found
