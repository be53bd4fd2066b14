"""Training tuples: one JSON line of a corpus becomes a typed record and then an example in TRL's conversational form.

Belongs here: the formats of CONTRACTS §4 and of the Hugging Face conventions, and each objective's rule of what can be
trained on. Does not: where the lines come from (snapshots), what is taken out of the text (cleaning).

TRL's formats: https://huggingface.co/docs/trl/dataset_formats
"""

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from ec1.errors import RejectedError
from ec1.files import digest_of

Objective = Literal["sft", "dpo"]
Message: TypeAlias = dict[str, str]
Example: TypeAlias = dict[str, list[Message]]

MIN_PAIR_CHARACTERS = 80
MAX_CHOSEN_CHARACTERS = 50_000
MAX_CHOSEN_RATIO = 8
TEMPLATE_ECHOES = ("<no diff provided", "<no changes", "<insert diff", "auto-reject:")

_ROLES = frozenset({"system", "user", "assistant", "tool"})
# In order of trust: when a tuple was made, else the event that made it.
_TIME_KEYS = ("created", "triggered_at", "created_at", "timestamp")
# Keys under which one tuple names what it was cut from. Tuples that share one belong on one side of the split.
_SOURCE_KEYS = ("session_id", "conversation_id", "source_commit", "brief_id", "group", "document_id")


class Kind(StrEnum):
    EDIT = "edit"
    APPRENTICESHIP = "apprenticeship"
    FEEDBACK = "apprenticeship-feedback"
    GENERIC = "generic"


@dataclass(frozen=True)
class TrainingTuple:
    """One parsed line. A field that the format does not have is None; texts are unchanged.

    `completion` is the SFT target; `chosen` and `rejected` are a DPO pair. `sources` are the sessions, commits and
    briefs that it was cut from, as `kind:value`, the coarsest first.
    """

    kind: Kind
    digest: str
    prompt: tuple[Message, ...]
    completion: tuple[Message, ...] | None
    chosen: tuple[Message, ...] | None
    rejected: tuple[Message, ...] | None
    sources: tuple[str, ...]
    created: dt.datetime | None
    tier: str | None
    tenant: str | None
    problem: str | None = None
    """Why the record holds nothing to learn, if the format itself says so."""


def parse_line(line: bytes | str) -> TrainingTuple:
    """Parse one JSON line. Raises RejectedError with a reason that repeats nothing of the line."""
    return parse_record(load_record(line))


def load_record(line: bytes | str) -> dict[str, Any]:
    """The JSON object of a line. Raises RejectedError with a reason that repeats nothing of the line."""
    try:
        record = json.loads(line.decode() if isinstance(line, bytes) else line, parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise RejectedError("not UTF-8") from None
    except (ValueError, RecursionError):
        raise RejectedError("not valid JSON") from None
    if not isinstance(record, dict):
        raise RejectedError("not a JSON object")
    return record


def parse_record(record: Mapping[str, Any]) -> TrainingTuple:
    """Recognise a record's format. Raises RejectedError for a format or a field that cannot be used."""
    try:
        digest = digest_of(record)
    except UnicodeEncodeError:
        raise RejectedError("holds half of a surrogate pair, which is no text") from None
    kind = record.get("tuple_type")
    if kind == Kind.EDIT:
        return _edit(record, digest)
    if kind == Kind.APPRENTICESHIP:
        return _apprenticeship(record, digest)
    if kind == Kind.FEEDBACK:
        return _pair(Kind.FEEDBACK, record, digest)
    if kind is not None and not ({"messages", "prompt"} & record.keys()):
        raise RejectedError("unknown tuple_type")
    return _generic(record, digest)


def example_of(item: TrainingTuple, objective: Objective) -> Example:
    """The training example: `prompt` + `completion` (SFT) or `prompt` + `chosen` + `rejected` (DPO), lists of messages.

    Raises RejectedError with the reason if the tuple is not trainable under that objective.
    """
    reason = trainable(item, objective)
    if reason is not None:
        raise RejectedError(reason)
    example = {"prompt": [dict(message) for message in item.prompt]}
    if objective == "dpo":
        assert item.chosen is not None and item.rejected is not None
        return example | {
            "chosen": [dict(message) for message in item.chosen],
            "rejected": [dict(message) for message in item.rejected],
        }
    target = item.completion or item.chosen
    assert target is not None
    return example | {"completion": [dict(message) for message in target]}


def trainable(item: TrainingTuple, objective: Objective) -> str | None:
    """Why a tuple cannot be trained on under an objective, or None if it can (CONTRACTS §4)."""
    if item.tier == "external":
        return "made by an external tier: its licence forbids training"
    if item.problem is not None:
        return item.problem
    if not _words(item.prompt):
        return "empty prompt"
    if objective == "dpo":
        return _pair_problem(item)
    target = item.completion or item.chosen
    if target is None or not _words(target):
        return "empty target"
    if _is_echo(_words(target)):
        return "target is a template echo"
    return None


def group_of(item: TrainingTuple) -> str:
    """What the tuple must be split by: its session, else commit, brief or document, else its prompt's digest."""
    return item.sources[0] if item.sources else "prompt:" + digest_of(list(item.prompt))[:32]


def created_at(record: Mapping[str, Any]) -> dt.datetime | None:
    """When a record says that it was made, in UTC; a time without a zone is taken as UTC. None if it does not say."""
    for key in _TIME_KEYS:
        value = record.get(key)
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
    return _build(
        Kind.EDIT,
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
        Kind.APPRENTICESHIP,
        {**record, "brief_id": brief.get("brief_id", attempt.get("brief_id"))},
        digest,
        prompt=(_message("user", body),) if body.strip() else (),
        chosen=(_message("assistant", chosen),),
        rejected=(_message("assistant", _text(attempt, "diff") or ""),),
        created=created_at(record) or created_at(attempt) or created_at(brief),
        tier=_text(attempt, "tier") or _text(record, "tier_used"),
    )


def _generic(record: Mapping[str, Any], digest: str) -> TrainingTuple:
    tier = _text(record, "tier_used")
    if "messages" in record:
        messages = _messages(record["messages"], "assistant", "messages")
        if isinstance(record["messages"], str) or not messages or messages[-1]["role"] != "assistant":
            raise RejectedError("messages is not a list that ends with the assistant")
        return _build(Kind.GENERIC, record, digest, prompt=messages[:-1], completion=messages[-1:], tier=tier)
    if {"prompt", "chosen", "rejected"} <= record.keys():
        return _pair(Kind.GENERIC, record, digest)
    if {"prompt", "completion"} <= record.keys():
        return _build(
            Kind.GENERIC,
            record,
            digest,
            prompt=_messages(record["prompt"], "user", "prompt"),
            completion=_messages(record["completion"], "assistant", "completion"),
            tier=tier,
        )
    raise RejectedError("neither an EC1 tuple nor messages, prompt/completion or prompt/chosen/rejected")


def _pair(kind: Kind, record: Mapping[str, Any], digest: str) -> TrainingTuple:
    return _build(
        kind,
        record,
        digest,
        prompt=_messages(record.get("prompt", ""), "user", "prompt"),
        chosen=_messages(record.get("chosen", ""), "assistant", "chosen"),
        rejected=_messages(record.get("rejected", ""), "assistant", "rejected"),
        tier=_text(record, "tier_used"),
    )


def _build(
    kind: Kind,
    record: Mapping[str, Any],
    digest: str,
    *,
    prompt: tuple[Message, ...] = (),
    completion: tuple[Message, ...] | None = None,
    chosen: tuple[Message, ...] | None = None,
    rejected: tuple[Message, ...] | None = None,
    created: dt.datetime | None = None,
    tier: str | None = None,
    problem: str | None = None,
) -> TrainingTuple:
    sources = tuple(
        f"{key}:{record[key]}" for key in _SOURCE_KEYS if isinstance(record.get(key), str | int) and record[key] != ""
    )
    return TrainingTuple(
        kind=kind,
        digest=digest,
        prompt=prompt,
        completion=completion,
        chosen=chosen,
        rejected=rejected,
        sources=sources,
        created=created or created_at(record),
        tier=tier,
        tenant=_text(record, "tenant"),
        problem=problem,
    )


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def _messages(value: Any, role: str, what: str) -> tuple[Message, ...]:
    if isinstance(value, str):
        return (_message(role, value),)
    if not isinstance(value, Sequence):
        raise RejectedError(f"{what} is neither text nor a list of messages")
    messages = []
    for item in value:
        if not isinstance(item, dict) or item.get("role") not in _ROLES or not isinstance(item.get("content"), str):
            raise RejectedError(f"{what} holds something that is not a message with a role and a text")
        messages.append(_message(item["role"], item["content"]))
    return tuple(messages)


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


def _pair_problem(item: TrainingTuple) -> str | None:
    if item.chosen is None or item.rejected is None:
        return "no pair of a chosen and a rejected answer"
    chosen, rejected = _words(item.chosen), _words(item.rejected)
    if len(chosen) < MIN_PAIR_CHARACTERS:
        return f"chosen is shorter than {MIN_PAIR_CHARACTERS} characters"
    if len(rejected) < MIN_PAIR_CHARACTERS:
        return f"rejected is shorter than {MIN_PAIR_CHARACTERS} characters"
    if len(chosen) > MAX_CHOSEN_CHARACTERS:
        return f"chosen is longer than {MAX_CHOSEN_CHARACTERS} characters"
    if len(chosen) > MAX_CHOSEN_RATIO * len(rejected):
        return f"chosen is more than {MAX_CHOSEN_RATIO} times as long as rejected"
    if chosen == rejected:
        return "chosen and rejected are the same"
    if _is_echo(chosen) or _is_echo(rejected):
        return "chosen or rejected is a template echo"
    return None


def _is_echo(text: str) -> bool:
    """True if a line opens with a template's placeholder; code that merely mentions one inside a line is no echo."""
    lowered = text.lower()
    if not any(echo in lowered for echo in TEMPLATE_ECHOES):
        return False
    return any(line.lstrip(" \t+-`>#*").startswith(TEMPLATE_ECHOES) for line in lowered.splitlines())


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
