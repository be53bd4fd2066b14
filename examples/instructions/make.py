"""`python -m examples.instructions.make`: fits the classifier of instructions to a machine
(`ec1/extraction/defence/instruction_model.py`) and writes its weights into the package.

What it learns from: `instructions.txt` and `ordinary.txt`, written for this; `japanese.txt` (NOTICE); the set `rule` of
`benchmarks/injections.jsonl`; and as further ordinary text the chunks of `examples/extractor/tuples.jsonl` (GUM, see
NOTICE, and generated ones). The same inputs give the same sentences; the weights' last digits differ between
processors.
"""

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ec1.documents.chunks import sentences
from ec1.extraction.defence.instruction_model import BUCKETS, WEIGHTS, features
from ec1.files import sha256_file
from ec1.home import CHECKOUT

HERE = Path(__file__).parent
WRITTEN = tuple(HERE / f"{name}.txt" for name in ("instructions", "ordinary", "records", "japanese"))
INSTRUCTIONS, ORDINARY = WRITTEN[:2]
RULE = CHECKOUT / "benchmarks" / "injections.jsonl"
TEXTS = CHECKOUT / "examples" / "extractor" / "tuples.jsonl"
TARGET = CHECKOUT / "ec1" / "extraction" / "defence" / WEIGHTS
INJECTED = "injected/"
"""How the `document_id` of a chunk begins into which one of these sentences was put."""
SEED = 29
VARIANTS = 16
"""How many sentences are made of a line, at most."""
_WRITTEN = 0.125
"""What such a sentence counts, beside one of a text: they are more like each other."""
_C = 20.0


def _words(text: str) -> list[str]:
    return text.split()


_GOES_ON = 0.5
"""How many of the English lines that do not end are followed by an ordinary sentence, as in a text."""
_PLACE_OF_NAME = re.compile(r"\{p\}")
_CHOICE = re.compile("«([^»]*)»")
_BLANKS = re.compile(r" (?=[.,;:!?])|  +")
_SYLLABLES = _words(
    "ba bel cor da dan el fa fen gar hol i is jo ka kel lo lun ma mir na nor o pa per qua ra ros sa sel ta "
    "tor u va vin wa yo zan"
)
# What may follow a line of English that does not end, and is then read with it.
_UNENDED = re.compile(r"[^.!?。！？]$")
_NEXT = (
    "There are two ways to get to the lake.",
    "The vote was put off until the spring.",
    "After that {p} spoke about the roof.",
    "We went home by bus, and nobody said a word.",
    "Then {p} thanked the guests.",
    "In 1950 the mill burned down.",
    "This was no surprise to {p}, who knew the valley well.",
    "He had not seen the sea for years.",
    "Prices rose again last month.",
    "I think {p} is right about that.",
    "Most of the plants die in winter.",
    "They bought the house from {p}.",
)
_FIRST = _words(
    "Anna Boris Carmen David Elif Farid Greta Hiroshi Ines Jonas Kofi Lena Mateo Nadia Oluwaseun Priya "
    "Quentin Rosa Stefan Thuy Ursula Victor Wanda Xavier Yuki Zeynep"
)
_LAST = _words(
    "Adler Brown Costa Dubois Eriksen Fischer Garcia Haddad Ivanov Jensen Kowalski Lopez Moreau Novak "
    "Okafor Patel Rossi Silva Tanaka Usman Vogel Weber Yilmaz Zhang"
)
_FIRM = _words(
    "Labs GmbH Inc. Ltd Partners Foods Logistics Holding AG Systems Group Bank Foundation University Institute"
)
_PLACE = _words("North Lake Port Mount Saint New")
_OTHER = {
    "zh": ["王小明", "李华", "张伟", "海川公司"],
    "ja": ["田中太郎", "佐藤花子", "山本商事"],
    "ko": ["김민수", "이영희", "박지훈"],
    "ru": ["Иван Петров", "Анна Смирнова", "Олег Кузнецов"],
    "uk": ["Іван Шевченко", "Олена Коваль"],
    "ar": ["أحمد خليل", "ليلى حسن"],
    "he": ["דוד כהן", "רות לוי"],
    "hi": ["राहुल शर्मा", "सीता वर्मा"],
    "el": ["Νίκος Παπάς", "Ελένη Δήμου"],
}


@dataclass(frozen=True)
class Example:
    """A sentence, whether it is an instruction, and the line it was made of."""

    text: str
    instruction: bool
    line: str


def examples() -> list[Example]:
    """All that is learnt from, in a fixed order."""
    random_ = random.Random(SEED)
    found = [example for path in WRITTEN for example in _written(path, path == INSTRUCTIONS, random_)]
    for row in map(json.loads, RULE.read_text(encoding="utf-8").splitlines()):
        if row["set"] == "rule":
            line = f"{row['language']} {row['text']}"
            instruction = row["kind"] == "instruction"
            texts = {row["text"].replace("{p}", name(row["language"], random_)) for _ in range(3)}
            found += [Example(text, instruction, line) for text in sorted(texts)]
    for row in map(json.loads, TEXTS.read_text(encoding="utf-8").splitlines()):
        if row["document_id"].startswith(INJECTED):
            continue
        text = row["text"]
        parts = (text[start:end].strip() for start, end in sentences(text))
        found += [Example(part, False, row["document_id"]) for part in parts if part]
    return list({each.text: each for each in found}.values())


def patterns(path: Path) -> list[tuple[str, str]]:
    """Language and pattern of each line of a file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [(line[:2], line[3:]) for line in lines if not line.startswith("#")]


def variant(language: str, pattern: str, random_: random.Random) -> str:
    """One of a pattern's sentences, with `{p}` where a name stands."""
    text = _CHOICE.sub(lambda found: random_.choice(found[1].split("|")), pattern)
    text = _BLANKS.sub(lambda found: "" if found[0] == " " else " ", text).strip()
    return text.replace(" ", "") if language in ("zh", "ja") else text


def person(random_: random.Random) -> str:
    """An invented person's name."""
    return f"{random_.choice(_FIRST)} {random_.choice(_LAST)}"


def _written(path: Path, instruction: bool, random_: random.Random) -> Iterator[Example]:
    for language, pattern in patterns(path):
        made = set()
        for _ in range(VARIANTS):
            text = variant(language, pattern, random_)
            if language == "en" and _UNENDED.search(text) and random_.random() < _GOES_ON:
                text = f"{text} {random_.choice(_NEXT)}"
            made.add(_named(text, language, random_))
        yield from (Example(text, instruction, f"{language} {pattern}") for text in sorted(made))


def _named(text: str, language: str, random_: random.Random) -> str:
    """The text with a name of its own for each `{p}`."""
    return _PLACE_OF_NAME.sub(lambda _: name(language, random_), text)


def name(language: str, random_: random.Random) -> str:
    """An invented name of a person, a firm, a place, or of nothing that is known."""
    kind = random_.random()
    if language in _OTHER and kind < 0.5:
        return random_.choice(_OTHER[language])
    if kind < 0.6:
        return person(random_)
    if kind < 0.7:
        return f"{random_.choice(_LAST)} {random_.choice(_FIRM)}"
    made = ["".join(random_.choices(_SYLLABLES, k=random_.choice((2, 3)))).capitalize() for _ in range(2)]
    if kind < 0.75:
        return f"{random_.choice(_PLACE)} {made[0]}"
    return made[0] if kind < 0.8 else " ".join(made)


@dataclass(frozen=True)
class Fitted:
    """What was fitted: the weights of the features, and the bias."""

    features: "np.ndarray"
    bias: float


def fit(learnt: Sequence[Example]) -> Fitted:
    """Fit the classifier."""
    from scipy.sparse import csr_matrix
    from sklearn.linear_model import LogisticRegression

    data: list[float] = []
    indices: list[int] = []
    ends = [0]
    for each in learnt:
        places = features(each.text)
        indices += places
        data += places.values()
        ends.append(len(indices))
    matrix = csr_matrix((data, indices, ends), shape=(len(learnt), BUCKETS))
    model = LogisticRegression(C=_C, tol=1e-6, max_iter=3000)
    written = {line for path in WRITTEN for line in path.read_text(encoding="utf-8").splitlines()}
    counts = [_WRITTEN if each.line in written else 1.0 for each in learnt]
    model.fit(matrix, [each.instruction for each in learnt], counts)
    return Fitted(model.coef_[0].astype(np.float16), float(model.intercept_[0]))


def origin() -> dict[str, str]:
    """SHA-256 of the files that hold nothing but what is learnt from."""
    return {path.name: sha256_file(path) for path in (*WRITTEN, TEXTS)}


def write(fitted: Fitted, target: Path = TARGET) -> None:
    """Write the weights, with what they were fitted to."""
    from safetensors.numpy import save_file

    save_file({"features": fitted.features, "bias": np.array([fitted.bias], np.float32)}, target, metadata=origin())


if __name__ == "__main__":
    learnt = examples()
    fitted = fit(learnt)
    write(fitted)
    print(
        f"{sum(each.instruction for each in learnt)} instructions, {len(learnt)} sentences; {TARGET.stat().st_size} B"
    )
