"""The served model's judgement of pairs that may be one: asked after a night's documents, used when it is resolved.

Belongs here: which pairs, within which limits, and which judgements count. Does not: the question (`ec1.graph.judge`),
the file (`ec1.graph.judgements`), what a judgement does (`ec1.graph.resolution`).

Nothing here fails a night: whatever goes wrong is the record's `problem`, and the pairs wait for another night.
"""

import asyncio
import datetime as dt
import logging
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ec1.deployment import Deployment
from ec1.errors import DeferredError, InputError, ServiceError
from ec1.files import write_json
from ec1.home import Home
from ec1.night.records import JudgingRecord

if TYPE_CHECKING:
    from ec1.extraction.client import ChatClient
    from ec1.extraction.extractor import Extractor
    from ec1.graph.judge import Judge, Question, Side
    from ec1.graph.judgements import Judgement
    from ec1.graph.model import StoredMention
    from ec1.graph.overrides import Overrides
    from ec1.graph.quotes import Quotes
    from ec1.graph.reader import GraphReader
    from ec1.graph.review import ReviewPair

log = logging.getLogger(__name__)

USED = "judgements.json"
"""In a night's folder: the judgements that its resolution used."""


class Judging:
    """One night's judging. `run` is called once, with the client of a server that has done its documents."""

    def __init__(self, deployment: Deployment, home: Home, night: str, extractor: "Extractor") -> None:
        self._deployment = deployment
        self._home = home
        self._night = night
        self._extractor = extractor
        self._record: JudgingRecord | None = None

    def record(self, stopped: str | None) -> JudgingRecord:
        """What came of it. `stopped`: why documents were put off, if they were."""
        reason = stopped or "no document needed the model"
        return self._record or JudgingRecord(problem=f"not asked: {reason}")

    def run(self, client: "ChatClient", deadline: float) -> None:
        """Ask, and keep each request's answers at once. `deadline` is in `time.monotonic` seconds."""
        begin = time.monotonic()
        self._record = JudgingRecord()
        try:
            self._run(client, deadline)
        except Exception as error:
            # A night's documents are worth more than any judgement.
            log.warning("pairs are not judged: %s", error, exc_info=not isinstance(error, InputError))
            self._stop(str(error) or type(error).__name__)
        self._record = self._record.model_copy(update={"seconds": round(time.monotonic() - begin, 3)})

    def _run(self, client: "ChatClient", deadline: float) -> None:
        from ec1.graph.judge import Judge
        from ec1.graph.judgements import by_judge, read_judgements
        from ec1.graph.reader import GraphReader

        if not self._home.published_graph.is_file():
            return
        judge = Judge.of(self._extractor)
        kept = read_judgements(self._home.judgements)
        with GraphReader(self._home.published_graph, buffer_pool_mib=self._deployment.graph.buffer_pool_mib) as reader:
            pairs = self._pairs(reader, by_judge(kept, judge.digest))
            asyncio.run(self._ask(client, judge, kept, self._questions(reader, pairs, kept, judge), deadline))

    def _pairs(self, reader: "GraphReader", mine: "dict[tuple[str, str], Judgement]") -> "list[ReviewPair]":
        """The pairs that the model may judge: of two clusters, and nothing speaks against them. Those that it settled
        are among them, since they may have other sentences now."""
        from ec1.graph.judgements import SAYS
        from ec1.graph.resolution import Band
        from ec1.graph.review import pairs_to_decide

        home = {member: cluster.key for cluster in reader.resolution().clusters for member in cluster.members}
        return [
            pair
            for pair in pairs_to_decide(reader, self._deployment.graph.overrides, mine.keys())
            if SAYS in f"{pair.link.reasons} {pair.link.veto}"
            or (
                pair.link.band is Band.REVIEW
                and pair.link.veto is None
                and home.get(pair.link.one, pair.link.one) != home.get(pair.link.other, pair.link.other)
            )
        ]

    def _questions(
        self, reader: "GraphReader", pairs: "list[ReviewPair]", kept: "list[Judgement]", judge: "Judge"
    ) -> "Iterator[tuple[ReviewPair, Question]]":
        """The questions that were not asked yet, made when their turn comes."""
        from ec1.extraction import decision
        from ec1.graph.judge import Question
        from ec1.graph.judgements import by_judge
        from ec1.graph.quotes import Quotes

        said = by_judge(kept, judge.digest)
        words = decision.labels(self._extractor.vocabulary)
        quotes = Quotes(
            self._deployment.documents_root(self._home),
            self._deployment.documents.max_bytes,
            lambda text, content_sha256: self._extractor.readable(text, content_sha256)[0],
        )
        for pair in pairs:
            one, other = (self._side(reader, quotes, each.key, each.name) for each in (pair.one, pair.other))
            entity_class = pair.one.entity_class
            question = Question(words.get(entity_class, entity_class.lower()).strip(), one, other)
            before = said.get((pair.link.one, pair.link.other))
            if one.sentences and other.sentences and (before is None or before.sentences != question.sentences):
                yield pair, question

    def _side(self, reader: "GraphReader", quotes: "Quotes", key: str, name: str) -> "Side":
        """An entity with a sentence of each of the documents that named it first."""
        from ec1.extraction import instructions
        from ec1.graph.judge import Side, excerpt

        ((_, mentions),) = reader.show(key)
        # The first ones: what later nights add would make it another question each time.
        first: dict[tuple[str, str], StoredMention] = {}
        for mention in sorted(mentions, key=lambda each: (each.night, each.stream, each.path, each.start)):
            first.setdefault((mention.stream, mention.path), mention)
        sentences: list[str] = []
        for mention in first.values():
            quote = quotes.of(mention)
            text = excerpt(*map(instructions.shown, (quote.before, quote.name, quote.after)))
            if text:
                sentences.append(text)
            if len(sentences) == self._deployment.graph.judge_sentences:
                break
        return Side(name, tuple(sentences))

    async def _ask(
        self,
        client: "ChatClient",
        judge: "Judge",
        kept: "list[Judgement]",
        questions: "Iterator[tuple[ReviewPair, Question]]",
        deadline: float,
    ) -> None:
        from ec1.graph.judge import PAIRS_A_REQUEST, ask
        from ec1.graph.judgements import Judgement, save_judgements

        # An earlier run of this night may have asked.
        asked = sum(each.night == self._night and each.judge == judge.digest for each in kept)
        left = max(0, self._deployment.graph.judge_pairs - asked)
        async with client.decider() as decider:
            while left and time.monotonic() < deadline:
                batch = list(islice(questions, min(left, PAIRS_A_REQUEST)))
                if not batch:
                    return
                try:
                    answers = await ask(decider, judge, [question for _, question in batch], deadline=deadline)
                except (DeferredError, ServiceError) as error:
                    self._stop(str(error))
                    return
                found = [
                    Judgement(
                        one=pair.link.one,
                        other=pair.link.other,
                        model=judge.model,
                        judge=judge.digest,
                        night=self._night,
                        at=dt.datetime.now(dt.UTC),
                        forward=forward,
                        backward=backward,
                        sentences=question.sentences,
                    )
                    for (pair, question), (forward, backward) in zip(batch, answers, strict=True)
                ]
                kept += found
                save_judgements(self._home.judgements, kept)
                self._count(judge, found)
                left -= len(batch)
            if next(questions, None) is not None:
                limit = f"graph.judge_pairs is {self._deployment.graph.judge_pairs}"
                self._stop(f"more pairs wait: {'the deadline came' if left else limit}")

    def _count(self, judge: "Judge", found: "list[Judgement]") -> None:
        assert self._record is not None
        said = [each.same(self._deployment.graph.judge_bound) for each in found]
        self._record = self._record.model_copy(
            update={
                "model": judge.model,
                "asked": self._record.asked + len(said),
                "same": self._record.same + said.count(True),
                "different": self._record.different + said.count(False),
                "unsure": self._record.unsure + said.count(None),
            }
        )

    def _stop(self, reason: str) -> None:
        assert self._record is not None
        self._record = self._record.model_copy(update={"problem": reason})


def judging_of(deployment: Deployment, home: Home, night: str, extractor: "Extractor") -> Judging | None:
    """What judges tonight; None where the deployment wants nobody to."""
    return None if deployment.graph.judge == "off" else Judging(deployment, home, night, extractor)


def with_judgements(
    overrides: "Overrides", deployment: Deployment, home: Home, folder: Path, extractor: "Extractor"
) -> "Overrides":
    """People's decisions, and below them what tonight's model is sure of. Which judgements these are is left in
    `folder`. With a damaged file of judgements none counts."""
    from ec1.graph.judge import Judge
    from ec1.graph.judgements import by_judge, read_judgements, sure
    from ec1.graph.overrides import with_judged

    if deployment.graph.judge == "off":
        return overrides
    try:
        mine = by_judge(read_judgements(home.judgements), Judge.of(extractor).digest)
    except (InputError, OSError) as error:
        log.warning("judgements do not count tonight: %s", error)
        return overrides
    decided = overrides.same_pairs().keys() | overrides.different_pairs().keys()
    used = {pair: each for pair, each in sorted(mine.items()) if pair not in decided}
    judged = sure(used.values(), deployment.graph.judge_bound)
    counted = [used[each.one, each.other].model_dump(mode="json") for each in judged]
    write_json(folder / USED, {"bound": deployment.graph.judge_bound, "judgements": counted})
    return with_judged(overrides, judged)
