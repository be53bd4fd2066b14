"""Two models, one after the other: the second reads the chunks that the first is unsure about.

Belongs here: which chunks those are, and what becomes of two results. Does not: serving two models
(`resources.inference`), and the order of work (`ec1.night.steps.extraction`).

How unsure a model is of a chunk is how many of its names it expects to be wrong about: the sum of 1 - confidence over
those that it kept, and of confidence over those that it dropped for it. With calibrated confidences this is a number of
names. A chunk in which it saw nothing is not one that it is unsure about.

How many chunks of a document may be sent on is the budget's share of them, rounded up or down by the content's digest:
up in that share of the documents that makes the budget whole on the average. So what becomes of a document depends on
its bytes alone, and not on which others came that night.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping

from ec1.extraction.folding import normalised
from ec1.extraction.results import Dropped, ExtractionResult, Mention
from ec1.extraction.settings import CascadeSettings
from ec1.files import digest_of

# Raise this when other chunks would be sent on, or two results would become another one.
CASCADE_VERSION = 1


def fingerprint(first: str, second: str, settings: CascadeSettings | None) -> str:
    """The fingerprint of two extractors, given theirs."""
    assert settings is not None, "two models have the settings of a cascade"
    return digest_of(
        {"cascade": [CASCADE_VERSION, settings.wrong_names, settings.max_share], "models": [first, second]}
    )


def unsure_chunks(result: ExtractionResult, settings: CascadeSettings) -> list[int]:
    """The chunks of a complete result that the second model is to read, in the order of the text."""
    expected = {chunk: wrong for chunk, wrong in _wrong_names(result).items() if wrong >= settings.wrong_names}
    chunks = len({answer.chunk for answer in result.answers})
    worst = sorted(expected, key=lambda chunk: (-expected[chunk], chunk))
    return sorted(worst[: _allowed(chunks, settings.max_share, result.content_sha256)])


def _wrong_names(result: ExtractionResult) -> dict[int, float]:
    doubts: dict[tuple[int, str], float] = {}
    found: list[tuple[Mention | Dropped, float]] = [(each, 1 - each.confidence) for each in result.mentions]
    found += [(each, each.confidence) for each in result.dropped if each.confidence is not None]
    for each, doubt in found:
        name = (each.chunk, normalised(each.name))
        doubts[name] = max(doubt, doubts.get(name, 0.0))
    wrong: dict[int, float] = defaultdict(float)
    for (chunk, _), doubt in doubts.items():
        wrong[chunk] += doubt
    return {chunk: round(each, 6) for chunk, each in wrong.items()}


def _allowed(chunks: int, share: float, content_sha256: str) -> int:
    return int(chunks * share + int(content_sha256[:8], 16) / 2**32)


def merged(
    first: ExtractionResult, second: ExtractionResult | None, sent: Collection[int], fingerprint: str
) -> ExtractionResult:
    """One result of the first's for a document and of the second's for the chunks that were sent on.

    In those the second's word counts, and for the class of a name in the whole document. If the second's does not
    count, neither does the whole: it is deferred, and has what the first said.
    """
    if first.status != "complete" or not sent or second is None:
        return first.model_copy(update={"fingerprint": fingerprint})
    if second.status != "complete":
        reason = f"the second model: {second.reason}"
        return first.model_copy(
            update={"fingerprint": fingerprint, "status": "deferred", "reason": reason, "blamed": second.blamed}
        )
    theirs = {normalised(each.name): each.entity_class for each in second.mentions}
    places = [(each.start, each.end) for each in second.mentions]
    mine = [
        each.model_copy(update={"entity_class": theirs.get(normalised(each.name), each.entity_class)})
        for each in first.mentions
        # Chunks overlap: what a neighbour says of a place in both gives way, too.
        if each.chunk not in sent and not any(each.start < end and start < each.end for start, end in places)
    ]
    mentions = sorted([*mine, *second.mentions], key=lambda each: (each.start, -each.end))
    classes: Mapping[str, str] = {normalised(each.name): each.entity_class for each in mentions}
    traits = dict.fromkeys(
        each for each in (*second.traits, *first.traits) if classes.get(normalised(each.name)) == each.entity_class
    )
    relations = [
        *(each for each in first.relations if each.chunk not in sent),
        *second.relations,
    ]
    return first.model_copy(
        update={
            "fingerprint": fingerprint,
            "calibrated": first.calibrated and second.calibrated,
            "mentions": tuple(mentions),
            "traits": tuple(traits),
            "relations": tuple(
                each
                for each in relations
                if (classes.get(normalised(each.subject)), classes.get(normalised(each.object)))
                == (each.subject_class, each.object_class)
            ),
            "dropped": (*(each for each in first.dropped if each.chunk not in sent), *second.dropped),
            "answers": tuple(
                sorted(
                    [*(each for each in first.answers if each.chunk not in sent), *second.answers],
                    key=lambda each: each.start,
                )
            ),
        }
    )
