"""What a page may change: the doors that commands go through, too, one function each.

Belongs here: finding the door, and who went through it. Does not: what a change means (`ec1.adapters.registry`,
`ec1.graph.review`, `ec1.serving.held`). The one module of `ec1.queries` that does not only read.
"""

import asyncio
import contextlib
import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from ec1.adapters.extractor import ROLE
from ec1.adapters.votes import Choice, Vote, add_vote
from ec1.corpus.buckets import bucket
from ec1.corpus.cases import case_of
from ec1.corpus.generated import CALLS, admit, answers_folder, asks_of, functions_of, generate, prompts_in, propose
from ec1.corpus.generated import held_rows as held_rows_of
from ec1.corpus.generation_recipe import SAMPLED, accept, note_sample, read_recipe, save_recipe, withdraw
from ec1.corpus.labels import take_records
from ec1.corpus.split import HeldOutGroups
from ec1.corpus.tuples import parse_record
from ec1.deployment import Deployment
from ec1.errors import InputError, RejectedError
from ec1.extraction.defence.releases import add
from ec1.extraction.settings import ExtractionSettings
from ec1.files import canonical_json, checked_name, digest_of, write_atomic
from ec1.graph.review import undo_decision, write_decisions
from ec1.night.forgetting import forget as forgetting
from ec1.plural import counted
from ec1.queries.adapters import VersionId, version_id
from ec1.queries.desk import Desk
from ec1.queries.feedback import held_rows, votes_file
from ec1.queries.forgetting import Forgotten, Wanted, learnt_from, look, seen
from ec1.queries.graph import open_graph, quotes_of, show
from ec1.queries.held_back import held_sentences
from ec1.queries.row_facts import learners_of_question
from ec1.queries.vibe import BASE, MAX_TOKENS, GatewayAddress, ask, book_of, model_of
from ec1.sandbox.batch import why_no_python
from ec1.serving.capture import AnswerCapture, Feedback, Giver
from ec1.serving.held import feedback_folder
from ec1.serving.server import open_capture
from ec1.serving.versions import ServedVersion

VersionAction = Literal["promote", "pin", "rollback", "unpin", "base", "quarantine"]


def decide_version(
    desk: Desk, action: VersionAction, tenant: str, role: str, version: int | None, reason: str, who: str
) -> str:
    """Promote, pin or quarantine a version, go back, unpin, or let the base serve; returns what is in use then.

    Raises InputError without a reason, for an unknown version or action, and as `AdapterRegistry`.
    """
    if not reason.strip():
        raise InputError("a decision needs a reason: it stands in the role's history for good")
    registry, reason = desk.registry, reason.strip()
    if action in ("promote", "pin", "quarantine"):
        if version is None:
            raise InputError(f"{action}: say which version")
        chosen: VersionId = (tenant, role, version)
        change = {"promote": registry.promote, "pin": registry.pin, "quarantine": registry.withdraw}[action]
        change(*chosen, reason, who)
    elif action in ("rollback", "unpin", "base"):
        {"rollback": registry.rollback, "unpin": registry.unpin, "base": registry.promote_base}[action](
            tenant, role, reason, who
        )
    else:
        raise InputError(f"{action!r} is nothing that can be done with a version")
    incumbent = registry.incumbent(tenant, role)
    return f"{incumbent.name} is in use" if incumbent else f"{tenant}/{role}: the base serves without an adapter"


SaidOf = Literal["accept", "correct", "down"]
STUDIO = "studio"
"""Stands where feedback of an application has the name of its API key."""


@dataclass(frozen=True)
class Judgement:
    """What a person says of one answer. `version` is None of a row of the corpus, which `about` names. `prompt`:
    messages of text. `correction`: what the answer should have been, where `verdict` is that. `labels`: the access
    labels of what it was written from, besides those that the version has."""

    tenant: str
    role: str
    version: int | None
    prompt: tuple[Mapping[str, str], ...]
    answer: str
    verdict: SaidOf
    correction: str = ""
    why: str = ""
    about: str = ""
    labels: tuple[str, ...] = ()


def judge(desk: Desk, said: Judgement, who: str, *, release: bool = False) -> str:
    """Hold a judgement in front of the door to the corpus, or let it in at once if the person has looked for names and
    secrets; returns what became of it. Raises InputError for what cannot be judged."""
    labels = _checked(desk, said)
    with _capture(desk) as capture:
        version, given, noted = _given(said, who)
        outcome = capture.judge(version, given, said.prompt, said.answer, Giver(STUDIO, who), noted, labels)
        if outcome.held is None:
            return f"noted; no row comes of it: {outcome.reason}"
        if not release:
            return f"{outcome.held} waits for its release"
        let_in = capture.held.release(outcome.held, who)
        return f"{outcome.held} is released: the next night counts it" if let_in else f"{outcome.held} was given before"


def keep_case(desk: Desk, said: Judgement, who: str) -> str:
    """Make a judgement an evaluation case: a row that is held out, and asked first in each evaluation of its role from
    the next dataset on. Returns what became of it.

    Raises InputError for what cannot be judged, or has no right answer, no reason, or a question that a version learnt.
    """
    labels = _checked(desk, said)
    if said.verdict == "down":
        raise InputError("an evaluation case needs the right answer: correct this one, or say that it is good")
    if not said.why.strip():
        raise InputError("an evaluation case needs a reason: say why it should judge")
    try:
        with _capture(desk) as capture:
            version, given, noted = _given(said, who)
            name, record = case_of(capture.record_of(version, given, said.prompt, said.answer, noted, labels), who)
    except RejectedError as error:
        raise InputError(f"no evaluation case comes of it: {error}") from None
    question = parse_record(record).prompt[-1]["content"]
    if learnt := learners_of_question(desk, said.tenant, said.role, question):
        raise InputError(
            f"{', '.join(learnt)} learnt an answer to this question, so it can judge nothing: ask it in other words"
        )
    target = bucket(desk.deployment.corpus_root(desk.home), said.role, said.tenant)
    # First the mark, then the row: it must never stand in the bucket as one to learn from.
    HeldOutGroups(desk.home.splits / f"{target.name}.json").add_case(f"brief_id:{name}")
    write_atomic(feedback_folder(target) / f"{name}.jsonl", canonical_json(record) + b"\n")
    return f"{name} judges from the next evaluation on, and nothing that asks the same is trained on"


def _checked(desk: Desk, said: Judgement) -> tuple[str, ...]:
    """The access labels of a judgement. Raises InputError for what is none."""
    if said.verdict not in get_args(SaidOf):
        raise InputError(f"{said.verdict!r} is not a verdict: there are {', '.join(get_args(SaidOf))}")
    if (said.verdict == "correct") != bool(said.correction.strip()):
        raise InputError("a corrected answer needs the correction, and no other verdict has one")
    if not said.prompt or not said.answer.strip():
        raise InputError("there is no question, or no answer, to judge")
    if said.verdict == "correct" and said.correction.strip() == said.answer.strip():
        raise InputError("the correction is the answer as it was: change it, or say that it is good")
    if said.version is None:
        return said.labels
    return tuple(sorted({*said.labels, *desk.registry.read(said.tenant, said.role, said.version).labels}))


def _given(said: Judgement, who: str) -> tuple[ServedVersion, Feedback, dict[str, str]]:
    given = Feedback(
        response_id="studio-" + digest_of([said.answer, *map(dict, said.prompt)])[:24],
        verdict=said.verdict,
        correction=said.correction or None,
        user=who,
    )
    noted = {key: value for key, value in (("why", said.why.strip()), ("judged", said.about)) if value}
    return ServedVersion(said.tenant, said.role, said.version or 0), given, noted


@dataclass(frozen=True)
class Compared:
    """Two answers of one role to one question, by `base` or `v3`, and which of them is better. `prompt`: messages of
    text; `blind`: the person did not know whose they are."""

    tenant: str
    role: str
    prompt: tuple[Mapping[str, str], ...]
    one: str
    one_answer: str
    other: str
    other_answer: str
    better: Choice
    blind: bool


def vote(desk: Desk, said: Compared, who: str) -> str:
    """Count a vote, and hold the pair that it makes as a judgement of the worse answer; returns what became of it.
    Raises InputError for two answers of one version, or what cannot be judged."""
    if said.one == said.other or not {said.one, said.other} - {BASE}:
        raise InputError("a vote is between two versions: choose two")
    if not said.prompt:
        raise InputError("there is no question that these answers are to")
    numbers = {each: _number_of(desk, said.tenant, said.role, each) for each in (said.one, said.other)}
    question = digest_of([dict(each) for each in said.prompt])[:24]
    now = dt.datetime.now(dt.UTC).replace(microsecond=0)
    counted = Vote(
        one=said.one, other=said.other, better=said.better, question=question, blind=said.blind, by=who, at=now
    )
    add_vote(votes_file(desk.home, said.tenant, said.role), counted)
    if said.better == "same":
        return f"counted: {said.one} and {said.other} are alike"
    answers = {said.one: said.one_answer, said.other: said.other_answer}
    better, worse = (said.one, said.other) if said.better == "one" else (said.other, said.one)
    if answers[better].strip() == answers[worse].strip():
        return f"counted: {better} is better than {worse}; their answers are alike, so no row comes of it"
    judgement = Judgement(
        tenant=said.tenant,
        role=said.role,
        version=numbers[worse],
        prompt=said.prompt,
        answer=answers[worse],
        verdict="correct",
        correction=answers[better],
        why=f"{better} answered better than {worse}",
        about="a blind comparison" if said.blind else "a comparison",
    )
    return f"counted: {better} is better than {worse}; the pair {judge(desk, judgement, who)}"


def _number_of(desk: Desk, tenant: str, role: str, name: str) -> int | None:
    """The number of a version; None of the base. Raises InputError, PermanentError."""
    if name == BASE:
        return None
    number = version_id(f"{tenant}/{role}@{name}")[2]
    desk.registry.read(tenant, role, number)
    return number


def decide_feedback(desk: Desk, row: str, action: Literal["release", "drop"], who: str) -> str:
    """Release or drop a row that waits; returns what became of it. Raises InputError."""
    with held_rows(desk.deployment, desk.home) as held:
        if held is None:
            raise InputError(f"no feedback is called {row!r}: nothing waits in this home")
        if action == "release":
            return f"{row} is released: the next night counts it" if held.release(row, who) else f"{row} was before"
        held.drop(row, who)
    return f"{row} is dropped"


def forget(desk: Desk, wanted: Wanted, looked_at: str, who: str) -> Forgotten:
    """Take out for good what a person looked at (`seen`), as `ec1 forget` does; returns what was removed and what is
    left. Raises InputError where other things would go by now, BusyError while somebody works in the home."""
    if seen(look(desk, wanted)) != looked_at:
        raise InputError("by now other things would go than those that you looked at: look again")
    return forgetting.forget(wanted, desk.deployment, desk.home, desk.registry, learnt_from(desk.registry), who=who)


def decide_pair(desk: Desk, one: str, other: str, *, same: bool, reason: str) -> str:
    """Write into the file of decisions that two entities are one, or two; returns where it stands. Raises InputError
    without a reason, or against an earlier decision."""
    path = _decisions_file(desk)
    write_decisions(path, [(one, other)], same=same, reason=reason)
    return f"{one} and {other} are {'one' if same else 'two'}: written to {path.name}, the next night follows it"


def undo_pair(desk: Desk, one: str, other: str) -> str:
    """Take the decision about two entities back. Raises InputError if there is none about just these two."""
    (reason, *_) = undo_decision(_decisions_file(desk), one, other)
    return f"taken back: {one} and {other} ({reason}); the next night decides by what documents say"


def _decisions_file(desk: Desk) -> Path:
    return desk.deployment.graph.overrides or desk.home.overrides


def check_learns_names(deployment: Deployment) -> None:
    """Raises InputError where corrections of what was extracted cannot be learnt."""
    if not deployment.extraction.vocabulary.is_contracts:
        raise InputError(
            "an extractor is trained for the contract's classes only, and extraction.classes names others: such "
            "corrections cannot be learnt; keep them in a file, and hold what is found against it: `ec1 score --gold`"
        )


def correct_names(desk: Desk, entity: str, path: str, start: int, lines: str, who: str) -> str:
    """Say which names stand in the sentence of a mention: a line `Class: name` each, none for no name. The extractor
    learns it; returns what became of it. Raises InputError for a sentence that cannot be read any more, an unknown
    class, or a name that is not in the sentence."""
    check_learns_names(desk.deployment)
    with open_graph(desk.home, desk.deployment, desk.labels) as reader:
        (it, *_) = show(reader, entity, None, quotes_of(desk.home, desk.deployment))
    found = next((each for each in it.evidence if (each.path, each.start) == (path, start)), None)
    if found is None or found.quote is None or not found.quote.name:
        raise InputError("this sentence cannot be read any more: open the page again")
    entities = []
    for line in filter(None, map(str.strip, lines.splitlines())):
        entity_class, colon, name = line.partition(":")
        if not colon:
            raise InputError(f"{line[:80]!r} has no class: write a line as Person: Jane Smith")
        entities.append({"name": name.strip(), "class": entity_class.strip()})
    quote = found.quote
    text = quote.before + quote.name + quote.after
    record = {"stream": found.stream, "path": path, "text": text, "entities": entities}
    taken = take_records(
        [record], f"{found.stream}/{path}", desk.deployment.corpus_root(desk.home) / ROLE, dt.datetime.now(dt.UTC),
        desk.deployment.documents.labels_of, corrected_by=who,
    )  # fmt: skip
    return "the extractor learns it with its next training" if taken.written else "the same was said before"


def decide_sentence(desk: Desk, sentence: str, action: Literal["release", "hold"], who: str) -> str:
    """Let a sentence be read that was held back, or say that it is held back rightly. Raises InputError for one that is
    not held back."""
    now = dt.datetime.now(dt.UTC).replace(microsecond=0)
    found = [each.line(action, who, now) for each in held_sentences(desk.home) if each.id == sentence]
    if not found:
        raise InputError(f"no sentence {sentence} is held back: `ec1 extraction held` lists those that are")
    add(desk.home.releases, lambda known: found[:1])
    return f"{sentence} {'is released: the next night reads it' if action == 'release' else 'stays held back'}"


def admit_rows(desk: Desk, role: str, digest: str) -> str:
    """Put the rows of a generation into its role's bucket. Raises InputError if there are none."""
    rows = held_rows_of(desk.home.generated / checked_name(role, "role"), checked_name(digest, "digest"))
    if not rows:
        raise InputError(f"generation {digest} holds no row")
    admit(rows, desk.deployment.corpus_root(desk.home) / role)
    return f"{len(rows)} rows are in the bucket of {role}: the next night counts them"


def save_generation(desk: Desk, name: str, text: str) -> tuple[str, str]:
    """Keep a recipe of generation; returns its role and name. Raises InputError for what is not one."""
    kept = save_recipe(desk.home.generated, name, text)
    return kept.recipe.role, kept.name


def sample_generation(
    desk: Desk,
    role: str,
    name: str,
    gateway: GatewayAddress,
    who: str,
    progress: Callable[[str], None] = lambda text: None,
) -> str:
    """Have the served base propose what a sample needs, execute it, and keep every step; returns what came of it.
    Nothing of it is in a bucket. Raises ServiceError without an engine, InputError without a sandbox."""
    from ec1.extraction.reading.openai import OpenAIClient

    if (why := why_no_python()) is not None:
        raise InputError(why)
    kept = read_recipe(desk.home.generated, role, name)
    recipe, root = kept.recipe, desk.home.generated
    functions = functions_of(recipe.functions, name)
    asks = asks_of(functions, recipe.requests)[: -(-SAMPLED // CALLS)]
    model = model_of("", "", BASE, gateway)
    answers = answers_folder(root / role, model, functions, recipe.prompting)

    async def ask_all() -> int:
        settings = ExtractionSettings(max_in_flight=4, max_answer_tokens=256)
        async with OpenAIClient(gateway.url, model, settings, api_key=gateway.api_key) as client:
            return await propose(asks, client, answers, progress, prompting=recipe.prompting)

    unanswered = asyncio.run(ask_all())
    progress("the sandbox executes what was proposed")
    known = prompts_in(desk.deployment.corpus_root(desk.home) / role)
    report = generate(asks, answers, kept.folder / "rows", unanswered=unanswered, model=model, known=known)
    note_sample(kept, report.digest, model, who)
    return str(report)


def decide_generation(desk: Desk, role: str, name: str, action: Literal["accept", "withdraw"], who: str) -> str:
    """Accept the sample of a recipe, so that nights make the rest, or take that back. Raises InputError."""
    kept = read_recipe(desk.home.generated, role, name)
    if action == "withdraw":
        withdraw(kept)
        return f"{name} is not accepted any more: nights make nothing of it; rows in the bucket stay"
    accept(kept, who)
    return f"{name} is accepted: the next night makes the rest, and puts it into the bucket of {role}"


def change_vibe_check(
    desk: Desk, tenant: str, role: str, who: str, *, add: str = "", system: str = "", remove: str = ""
) -> str:
    """Add a prompt to a role's vibe check, or take out the one of an id; returns what was done. Raises InputError."""
    book = book_of(desk, tenant, role)
    if remove:
        book.remove(remove)
        return "the prompt is taken out; what was answered to it is kept"
    book.add(add, system, who)
    return "the prompt is added: each version is asked it from now on"


def run_vibe_check(
    desk: Desk,
    tenant: str,
    role: str,
    columns: Sequence[str],
    gateway: GatewayAddress,
    progress: Callable[[str], None] = lambda text: None,
) -> str:
    """Ask the versions (`v3`, or `base`) what they have not answered yet, one after the other, and keep each answer as
    soon as it is there; returns what was done. Raises ServiceError where a model does not answer."""
    book, prompts, asked = book_of(desk, tenant, role), book_of(desk, tenant, role).prompts(), 0
    for column in columns:
        model = model_of(tenant, role, column, gateway)
        record = book.record(column)
        there = set(record.answers) if record and (record.model, record.max_tokens) == (model, MAX_TOKENS) else set()
        for prompt in prompts:
            if prompt.id in there:
                continue
            progress(f"{column}, prompt {prompts.index(prompt) + 1} of {len(prompts)}")
            book.keep(column, model, MAX_TOKENS, {prompt.id: ask(gateway, model, prompt)})
            asked += 1
    return f"written: {counted(asked, 'answer')}" if asked else "every prompt was answered before"


@contextlib.contextmanager
def _capture(desk: Desk) -> Iterator[AnswerCapture]:
    capture = open_capture(desk.deployment, desk.home)
    try:
        yield capture
    finally:
        capture.close()
