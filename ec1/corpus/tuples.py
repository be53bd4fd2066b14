"""Training tuples: one JSON line of a corpus becomes a typed record and then an example in TRL's conversational form.

Belongs here: our own formats (docs/contracts.md), and each objective's rule of what can be trained on. Does not: the
formats of others (formats), where the lines come from (snapshots), what is taken out of the text (cleaning).

TRL's formats: https://huggingface.co/docs/trl/dataset_formats
"""

import datetime as dt
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from pydantic import ValidationError

from ec1.corpus.access import access_labels
from ec1.corpus.formats import Message, messages_of, read_row
from ec1.corpus.keys import OF_OWN, OF_ROW, Fields, without
from ec1.corpus.row_kinds import PAIRS, ROW_KINDS, TASKS, TEXTS, RowKindName
from ec1.errors import RejectedError
from ec1.files import digest_of
from ec1.rewards.checks import Check

Objective: TypeAlias = RowKindName
Example: TypeAlias = dict[str, list[dict[str, Any]]]
"""Lists of messages: `prompt` with `completion`, with `chosen` and `rejected`, or with `checks` (one message, JSON);
and `tools`, if the row has any."""

MIN_PAIR_CHARACTERS = 80
MAX_CHOSEN_CHARACTERS = 50_000
MAX_CHOSEN_RATIO = 8
MIN_SHARED_CHARACTERS = 100
"""A shorter answer can be given in two talks that have nothing to do with each other."""
MIN_LINK_BYTES = 16
"""A shorter question or answer is the same by nature: yes, a number, a label."""
MAX_QUESTION_CHARACTERS = 2_000
"""Of a longer question the sentences are its matter, such as a page to read, and not its wrapper."""
ALONE = "text alone has no answer to learn: it needs a prompt and a completion, or a recipe with objective clm"
TEMPLATE_ECHOES = ("<no diff provided", "<no changes", "<insert diff", "auto-reject:")

_NO_WORD = re.compile(r"[\W_]+")
_SENTENCE = re.compile(r"[\n:.!?。！？：]+")
# In order of trust: when a tuple was made, else the event that made it.
_TIME_KEYS = ("created", "triggered_at", "created_at", "timestamp")
# Keys under which one tuple names what it was cut from. Tuples that share one belong on one side of the split.
_SOURCE_KEYS = ("session_id", "conversation_id", "source_commit", "brief_id", "group", "document_id")


class TupleKind(StrEnum):
    EDIT = "edit"
    APPRENTICESHIP = "apprenticeship"
    FEEDBACK = "apprenticeship-feedback"
    EXTRACTION = "extraction"
    TASK = "task"
    TEXT = "text"
    GENERIC = "generic"


@dataclass(frozen=True)
class TrainingTuple:
    """One parsed line. A field that the format does not have is None; texts are unchanged.

    `completion` is the SFT target; `chosen` and `rejected` are a DPO pair. `sources` are the sessions, commits and
    briefs that it was cut from, as `kind:value`, the coarsest first.
    """

    kind: TupleKind
    digest: str
    prompt: tuple[Message, ...]
    completion: tuple[Message, ...] | None
    chosen: tuple[Message, ...] | None
    rejected: tuple[Message, ...] | None
    sources: tuple[str, ...]
    created: dt.datetime | None
    tier: str | None
    tenant: str | None
    tools: tuple[dict[str, Any], ...] | None = None
    checks: tuple[dict[str, Any], ...] | None = None
    """Of a task: what its answers are held against."""
    problem: str | None = None
    """Why the record holds nothing to learn, if the format itself says so."""
    labels: tuple[str, ...] = ()
    """Access labels: only a recipe that has all of them may learn from it."""


def load_record(line: bytes | str) -> dict[str, Any]:
    """The JSON object of a line. Raises RejectedError with a reason that repeats nothing of the line."""
    try:
        record = DECODER.decode(line.decode() if isinstance(line, bytes) else line)
    except UnicodeDecodeError:
        raise RejectedError("not UTF-8") from None
    except RejectedError:
        raise
    except (ValueError, RecursionError):
        raise RejectedError("not valid JSON") from None
    if not isinstance(record, dict):
        raise RejectedError("not a JSON object")
    return record


def parse_record(record: Mapping[str, Any], ignored: Collection[str] = ()) -> TrainingTuple:
    """Recognise a record's format. Raises RejectedError for a format or a field that cannot be used.

    `ignored` are keys that a person said change nothing (see `keys`); the digest is that of the whole record.
    """
    try:
        digest = digest_of(record)
    except UnicodeEncodeError:
        raise RejectedError("holds half of a surrogate pair, which is not text") from None
    except (TypeError, ValueError):
        raise RejectedError("holds something that JSON has no form for") from None
    kind = record.get("tuple_type")
    if isinstance(kind, str) and kind in OF_OWN:
        row = Fields(without(record, ignored) if ignored else record, "", OF_ROW | OF_OWN[kind])
        row.finish()
        record = row.values
    if kind == TupleKind.EDIT:
        return _edit(record, digest)
    if kind == TupleKind.APPRENTICESHIP:
        return _apprenticeship(record, digest)
    if kind == TupleKind.FEEDBACK:
        return _feedback(record, digest)
    if kind == TupleKind.EXTRACTION:
        return _extraction(record, digest)
    if kind == TupleKind.TASK:
        return _task(record, digest)
    if kind is not None and not ({"messages", "conversations", "prompt"} & record.keys()):
        raise RejectedError("unknown tuple_type")
    return _generic(record, digest, ignored)


def example_of(item: TrainingTuple, objective: Objective) -> Example:
    """The training example: `prompt` + `completion` (SFT), `prompt` + `chosen` + `rejected` (DPO), `prompt` + `checks`
    (tasks); lists of messages. Of a text the prompt is empty.

    A conversation's completion is its last answer that counts; the answers before it are in the prompt, and those of
    them that do not count have `train` false.
    Raises RejectedError with the reason if the tuple is not trainable under that objective.
    """
    reason = trainable(item, objective)
    if reason is not None:
        raise RejectedError(reason)
    example = {"prompt": [dict(message) for message in item.prompt]}
    if item.tools:
        example["tools"] = [dict(tool) for tool in item.tools]
    if ROW_KINDS[objective] is PAIRS:
        assert item.chosen is not None and item.rejected is not None
        return example | {
            "chosen": [dict(message) for message in item.chosen],
            "rejected": [dict(message) for message in item.rejected],
        }
    if ROW_KINDS[objective] is TASKS:
        return example | {"checks": [_message("checks", json.dumps(item.checks, ensure_ascii=False, sort_keys=True))]}
    target = item.completion or item.chosen
    assert target is not None
    return example | {"completion": [dict(message) for message in target]}


def trainable(item: TrainingTuple, objective: Objective) -> str | None:
    """Why a tuple cannot be trained on under an objective, or None if it can (docs/contracts.md)."""
    if item.tier == "external":
        return "made by an external tier: its licence forbids training"
    if item.problem is not None:
        return item.problem
    if ROW_KINDS[objective] is TEXTS:
        if item.kind != TupleKind.TEXT:
            return "not a text alone"
        return None if _words(item.completion or ()) else "empty target"
    if item.kind == TupleKind.TEXT:
        return ALONE
    if not _words(item.prompt):
        return "empty prompt"
    if ROW_KINDS[objective] is PAIRS:
        return _pair_problem(item)
    if ROW_KINDS[objective] is TASKS:
        return None if item.checks else "no checks to hold answers against"
    target = item.completion or item.chosen
    if target is None or not _says_something(target):
        return "empty target"
    if item.kind != TupleKind.GENERIC and _is_echo(_words(target)):
        return "target is a template echo"
    return None


def texts_of(example: Example) -> Iterator[str]:
    """Every text of an example that a model reads: contents, reasoning, and calls and tools as JSON."""
    for column, items in example.items():
        for item in items:
            if column == "tools":
                yield json.dumps(item, ensure_ascii=False, sort_keys=True)
                continue
            yield item["content"]
            if "reasoning_content" in item:
                yield item["reasoning_content"]
            for call in item.get("tool_calls", ()):
                yield json.dumps(call["function"], ensure_ascii=False, sort_keys=True)


def group_of(item: TrainingTuple) -> str:
    """What the tuple must be split by: its session, else commit, brief or document, else its prompt's digest."""
    return item.sources[0] if item.sources else prompt_source(item)


def prompt_source(item: TrainingTuple) -> str:
    """The prompt as something that tuples share: the same question belongs on one side, whatever was answered. Of a
    text, which has none, the text."""
    asked = item.prompt if item.kind != TupleKind.TEXT else item.completion or ()
    return "prompt:" + digest_of(list(asked))[:32]


def said_in(item: TrainingTuple) -> tuple[str, ...]:
    """Each longer answer of a tuple as something that tuples share: overlapping pieces of a talk have one in common."""
    messages = (*item.prompt, *(item.completion or ()), *(item.chosen or ()))
    texts = {" ".join(message["content"].split()) for message in messages if message["role"] == "assistant"}
    return tuple(sorted("said:" + digest_of(text)[:24] for text in texts if len(text) >= MIN_SHARED_CHARACTERS))


def links_of(item: TrainingTuple) -> tuple[str, ...]:
    """What a tuple asks and what it answers, whatever the case and the punctuation: tuples that share one of them say
    the same. Of a question each sentence counts too: others stand around it in a wrapper. Nothing of what is short."""
    asked = next((message["content"] for message in reversed(item.prompt) if message["role"] == "user"), "")
    said = "\n".join(message["content"] for message in item.completion or item.chosen or ())
    found = [f"asked:{_plain(asked)}", f"said:{_plain(said)}"]
    if item.kind == TupleKind.GENERIC and len(asked) <= MAX_QUESTION_CHARACTERS:
        found += [f"asked:{_plain(piece)}" for piece in _SENTENCE.split(asked)]
    # A letter of a script without spaces says as much as three of Latin, and takes as many bytes.
    long = {link for link in found if len(link.partition(":")[2].encode("utf-8", "replace")) >= MIN_LINK_BYTES}
    return tuple(sorted(long))


def _plain(text: str) -> str:
    return _NO_WORD.sub("", text.casefold())


def sources_of(record: Mapping[str, Any], group_by: Sequence[str] = ()) -> tuple[str, ...]:
    """What a record was cut from, as `key:value`, the coarsest first; keys stand at the top or in `metadata`.

    `group_by`: keys of a recipe that come before the usual ones, with dots for what is further inside.
    """
    found: dict[str, None] = {}
    for key in group_by:
        value: Any = record
        for part in key.split("."):
            value = _mapping(value).get(part)
        if isinstance(value, str | int) and value != "":
            found[f"{key}:{value}"] = None
    places = (record, metadata_of(record))
    for key in _SOURCE_KEYS:
        for place in places:
            if isinstance(place.get(key), str | int) and place[key] != "":
                found[f"{key}:{place[key]}"] = None
    return tuple(found)


def metadata_of(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """A record's `metadata` (or `meta`), as an object or as JSON text; empty if it has none."""
    return _mapping(record.get("metadata") or record.get("meta"))


def _mapping(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}


def created_at(record: Mapping[str, Any]) -> dt.datetime | None:
    """When a record says that it was made, in UTC; a time without a zone is taken as UTC. None if it does not say."""
    metadata = metadata_of(record)
    for value in [place.get(key) for place in (record, metadata) for key in _TIME_KEYS]:
        if isinstance(value, str) and value:
            try:
                moment = dt.datetime.fromisoformat(value)
            except ValueError:
                continue
            moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
            try:
                return moment.astimezone(dt.UTC)
            except OverflowError:
                continue
    return None


def _edit(record: Mapping[str, Any], digest: str) -> TrainingTuple:
    subject, _, body = (_text(record, "commit_msg") or "").strip().partition("\n")
    diff = _text(record, "diff") or ""
    body = body.strip()
    description = (_text(record, "description") or body).strip()
    problem = None
    if diff.strip() and record.get("diff_truncated") is not True:
        ask, target = "Write this change as a unified diff.", diff
        wish = f"{subject}\n\n{body}" if body else subject
    else:
        # A diff that was cut off would teach the model to stop half-way: its description is the target instead.
        ask, target, wish = "Describe this change: what it does and why.", description, subject
        if not description:
            problem = "diff is cut off and not described" if diff.strip() else "neither a diff nor a description of it"
    cluster = _text(record, "cluster")
    context = f"Project: {cluster}\n\n" if cluster else ""
    before = (_text(record, "before") or "").rstrip("\n")
    if before and target is diff:
        wish = f"{wish}\n\nBefore the change:\n\n{before}"
    return _build(
        TupleKind.EDIT,
        record,
        digest,
        prompt=(_message("user", f"{context}{ask}\n\n{wish}"),) if subject else (),
        completion=(_message("assistant", target),),
        problem=problem,
    )


def _apprenticeship(record: Mapping[str, Any], digest: str) -> TrainingTuple:
    brief, attempt = _object(record, "brief"), _object(record, "attempt")
    body = _text(brief, "body") or ""
    chosen = _text(record, "final_diff") or _text(record, "actual_diff") or ""
    return _build(
        TupleKind.APPRENTICESHIP,
        {**record, "brief_id": brief.get("brief_id", attempt.get("brief_id"))},
        digest,
        prompt=(_message("user", body),) if body.strip() else (),
        chosen=(_message("assistant", chosen),),
        rejected=(_message("assistant", _text(attempt, "diff") or ""),),
        created=created_at(record) or created_at(attempt) or created_at(brief),
        tier=_text(attempt, "tier") or _text(record, "tier_used"),
    )


def _extraction(record: Mapping[str, Any], digest: str) -> TrainingTuple:
    """A chunk of a document and what is named in it: the question and the answer of a trained extractor."""
    from ec1.extraction.naming import trained
    from ec1.extraction.results import ENTITY_CLASSES

    text, entities = _text(record, "text") or "", record.get("entities")
    if not isinstance(entities, list) or not all(isinstance(each, dict) for each in entities):
        raise RejectedError("entities is not a list of objects with a name and a class")
    gold: dict[str, str] = {}
    for each in entities:
        name, entity_class = _text(each, "name"), _text(each, "class")
        if not name or name not in " ".join(text.split()):
            raise RejectedError("an entity's name does not stand in the text")
        if entity_class not in ENTITY_CLASSES:
            raise RejectedError(f"an entity's class is not one of {', '.join(ENTITY_CLASSES)}")
        gold[name] = entity_class
    return _build(
        TupleKind.EXTRACTION,
        record,
        digest,
        prompt=tuple(trained.messages(text)) if text.strip() else (),
        completion=(_message("assistant", trained.answer_of(text, gold)),),
        tier=_text(record, "tier_used"),
    )


def _task(record: Mapping[str, Any], digest: str) -> TrainingTuple:
    """A prompt without an answer, and the checks that tell which answers are right."""
    checks = record.get("checks")
    if not isinstance(checks, list) or not checks:
        raise RejectedError("checks is not a list of objects with check and value")
    for each in checks:
        try:
            Check.model_validate(each)
        except ValidationError:
            raise RejectedError("a check is none that docs/recipes.md names") from None
    return _build(
        TupleKind.TASK,
        record,
        digest,
        prompt=_one_sided(record.get("prompt", ""), "user", "prompt"),
        tier=_text(record, "tier_used"),
        checks=tuple(dict(each) for each in checks),
    )


def _generic(record: Mapping[str, Any], digest: str, ignored: Collection[str]) -> TrainingTuple:
    row = read_row(record, ignored)
    if row.chosen is not None:
        return _build(
            TupleKind.GENERIC,
            record,
            digest,
            prompt=row.messages,
            chosen=row.chosen,
            rejected=row.rejected,
            tools=row.tools,
        )
    if row.format == "text":
        return _build(TupleKind.TEXT, record, digest, completion=row.messages)
    if row.messages and row.messages[-1]["role"] != "assistant":
        raise RejectedError(f"{row.format} does not end with the assistant")
    # What comes after the last answer that counts has no part in the loss.
    last = next(
        (
            place
            for place in reversed(range(len(row.messages)))
            if row.messages[place]["role"] == "assistant" and row.messages[place].get("train", True)
        ),
        None,
    )
    if last is None:
        raise RejectedError("no answer is to be trained" if row.messages else "an empty conversation")
    return _build(
        TupleKind.GENERIC,
        record,
        digest,
        prompt=row.messages[:last],
        completion=row.messages[last : last + 1],
        tools=row.tools,
    )


def _feedback(record: Mapping[str, Any], digest: str) -> TrainingTuple:
    return _build(
        TupleKind.FEEDBACK,
        record,
        digest,
        prompt=_one_sided(record.get("prompt", ""), "user", "prompt"),
        chosen=_one_sided(record.get("chosen", ""), "assistant", "chosen"),
        rejected=_one_sided(record.get("rejected", ""), "assistant", "rejected"),
    )


def _build(
    kind: TupleKind,
    record: Mapping[str, Any],
    digest: str,
    *,
    prompt: tuple[Message, ...] = (),
    completion: tuple[Message, ...] | None = None,
    chosen: tuple[Message, ...] | None = None,
    rejected: tuple[Message, ...] | None = None,
    created: dt.datetime | None = None,
    tier: str | None = None,
    tools: tuple[dict[str, Any], ...] | None = None,
    checks: tuple[dict[str, Any], ...] | None = None,
    problem: str | None = None,
) -> TrainingTuple:
    return TrainingTuple(
        kind=kind,
        digest=digest,
        prompt=prompt,
        completion=completion,
        chosen=chosen,
        rejected=rejected,
        sources=sources_of(record),
        created=created or created_at(record),
        tier=_tier(record, tier),
        tenant=_text(record, "tenant"),
        tools=tools,
        checks=checks,
        problem=problem,
        labels=access_labels(record, metadata_of(record)),
    )


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def _one_sided(value: Any, role: str, what: str) -> tuple[Message, ...]:
    return (_message(role, value),) if isinstance(value, str) else messages_of(value, what)


def _tier(record: Mapping[str, Any], own: str | None) -> str | None:
    """Which tier made a record, in lower case; `external` wherever the record says so."""
    places = (record, metadata_of(record))
    found = [own, *(place.get(key) for place in places for key in ("tier_used", "tier"))]
    spelt = [str(tier).strip().lower() for tier in found if isinstance(tier, str) and tier.strip()]
    return "external" if "external" in spelt else next(iter(spelt), None)


def _text(record: Mapping[str, Any], key: str) -> str | None:
    value = record.get(key)
    if value is None or isinstance(value, str):
        return value
    raise RejectedError(f"{key} is not text")


def _object(record: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = record.get(key)
    if isinstance(value, dict):
        return value
    raise RejectedError(f"{key} is missing or not an object")


def _words(messages: Sequence[Message]) -> str:
    return "\n".join(message["content"] for message in messages if message["role"] != "system").strip()


def _says_something(messages: Sequence[Message]) -> bool:
    return bool(_words(messages)) or any("tool_calls" in message for message in messages)


def _pair_problem(item: TrainingTuple) -> str | None:
    if item.chosen is None or item.rejected is None:
        return "no pair of a chosen and a rejected answer"
    messages = (*item.prompt, *item.chosen, *item.rejected)
    if item.tools or any("tool_calls" in message or "reasoning_content" in message for message in messages):
        return "a pair with tools, calls or reasoning: preference training has no place for them"
    chosen, rejected = _words(item.chosen), _words(item.rejected)
    if chosen == rejected:
        return "chosen and rejected are the same"
    if item.kind == TupleKind.GENERIC:
        return None if chosen and rejected else "chosen or rejected is empty"
    if len(chosen) < MIN_PAIR_CHARACTERS:
        return f"chosen is shorter than {MIN_PAIR_CHARACTERS} characters"
    if len(rejected) < MIN_PAIR_CHARACTERS:
        return f"rejected is shorter than {MIN_PAIR_CHARACTERS} characters"
    if len(chosen) > MAX_CHOSEN_CHARACTERS:
        return f"chosen is longer than {MAX_CHOSEN_CHARACTERS} characters"
    if len(chosen) > MAX_CHOSEN_RATIO * len(rejected):
        return f"chosen is more than {MAX_CHOSEN_RATIO} times as long as rejected"
    if _is_echo(chosen) or _is_echo(rejected):
        return "chosen or rejected is a template echo"
    return None


def _is_echo(text: str) -> bool:
    """True if a line opens with a template's placeholder; code that merely mentions one inside a line is not an
    echo."""
    lowered = text.lower()
    if not any(echo in lowered for echo in TEMPLATE_ECHOES):
        return False
    return any(line.lstrip(" \t+-`>#*").startswith(TEMPLATE_ECHOES) for line in lowered.splitlines())


def _no_constant(name: str) -> Any:
    raise RejectedError(f"{name} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Which of two values is meant nobody can know.
    found = dict(pairs)
    if len(found) != len(pairs):
        raise RejectedError("holds a key twice")
    return found


DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)
"""JSON as it is meant: no key twice, no NaN. Raises RejectedError for these."""
