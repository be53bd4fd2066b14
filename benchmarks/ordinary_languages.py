"""How many ordinary sentences of other languages are held back as instructions to a machine, and how many that are one.

Texts are not bundled: name files of Universal Dependencies (`xx_pud-ud-test.conllu`, news and encyclopaedia, CC BY-SA
3.0, https://github.com/UniversalDependencies) or of a sentence a line, called by their language (`ja.txt`). Fifteen
sentences that follow each other are a document. Into some of them an instruction of `injections.jsonl` in the same
language is put, of the sets that the classifier did not learn. Beside today's rule stands the one that does not ask
whether a text's other sentences look like instructions, too. No model is asked.
"""

import argparse
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

from benchmarks.injected_sentences import SETS, sentences_of
from ec1.documents.chunks import sentences
from ec1.extraction.defence import instructions

_TOGETHER, _TIMES = 15, 3
_MARK = "# text = "


def texts_of(file: Path) -> list[str]:
    """Documents of the file's sentences."""
    lines = file.read_text(encoding="utf-8").splitlines()
    if file.suffix == ".conllu":
        lines = [line.removeprefix(_MARK) for line in lines if line.startswith(_MARK)]
    return ["\n".join(lines[at : at + _TOGETHER]) for at in range(0, len(lines), _TOGETHER)]


def attacked(texts: Sequence[str], language: str) -> Iterator[tuple[str, int]]:
    """A text with an instruction of that language in it, and a place inside the instruction."""
    random_ = random.Random(5)
    for which in SETS[1:]:
        for sentence, _ in sentences_of(which, "instruction", language):
            for _ in range(_TIMES):
                lines = random_.choice(texts).split("\n")
                lines.insert(at := random_.randint(1, len(lines)), sentence)
                before = "\n".join(lines[:at])
                yield "\n".join(lines), len(before) + 1 + len(sentence) // 2


def measure(texts: Sequence[str], language: str) -> tuple[float, int, int, int]:
    """The share of ordinary sentences that are held back; of so many instructions how many are held back, and how many
    must be found with confidence."""
    judged = [instructions.judge(text) for text in texts]
    share = sum(len(each.held) for each in judged) / sum(len(list(sentences(text))) for text in texts)
    held = suspect = count = 0
    for text, at in attacked(texts, language):
        found = instructions.judge(text)
        count += 1
        held += any(each.start <= at < each.end for each in found.held)
        suspect += any(each.start <= at < each.end for each in found.suspect)
    return share, count, held, suspect


def main(files: Sequence[Path]) -> None:
    """Print a row for each file and rule."""
    print(f"{'language':9} {'rule':15} {'ordinary held':>13} {'instructions':>12} {'held':>5} {'suspect':>8}")
    for file in files:
        texts, language = texts_of(file), file.name[:2]
        for rule, lift in (("by itself", 0.0), ("beside the rest", instructions.HELD_LIFT)):
            with patch.object(instructions, "HELD_LIFT", lift):
                share, count, held, suspect = measure(texts, language)
            print(f"{language:9} {rule:15} {share:13.1%} {count:12} {held:5} {suspect:8}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ordinary_languages", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    main(parser.parse_args().files)
