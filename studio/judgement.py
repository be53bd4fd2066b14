"""The pages of judgement and generation: answers side by side, what a person says of one, and what waits."""

import json
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ec1.errors import EC1Error, InputError, ServiceError
from ec1.queries import doors, feedback, generation
from ec1.queries.adapters import version_id
from ec1.queries.desk import Desk
from ec1.queries.rows import Row, RowSource, labels_of, role_of
from studio.web import Form, after, fields_of, needed, problem, render, state_of

PAGE = 20
MOST_ANSWERS = 12
_CASES = 200
_ORDER = secrets.SystemRandom()


def waiting(request: Request, desk: Desk) -> Response:
    page = feedback.waiting(desk.deployment, desk.home, None, PAGE, request.query_params.get("after") or None)
    shown = [each for each in page.items if desk.may_see(feedback.labels_of(each.record))]
    cases = feedback.cases(desk)
    return render(request, "waiting_feedback.html", page=page, waiting=shown, cases=cases[:_CASES], count=len(cases))


def decide(request: Request, desk: Desk, form: Form) -> str:
    action = needed(form, "action", "what to do")
    if action not in ("release", "drop"):
        raise InputError(f"{action!r} is nothing that can be done with feedback")
    row = request.path_params["row"]
    return after("/judge", doors.decide_feedback(desk, row, action, state_of(request).person))  # type: ignore[arg-type]


def judge(request: Request, desk: Desk, form: Form) -> str:
    """What a form of `judge.html` says."""
    model = form.get("model", "")
    if model:
        tenant, role, number = version_id(model)
    else:
        tenant, _, role = needed(form, "role", "whose row it is").partition("/")
    said = doors.Judgement(
        tenant=tenant,
        role=role,
        version=number if model else None,
        prompt=_messages_of(form),
        answer=form.get("answer", "").replace("\r\n", "\n"),
        verdict=needed(form, "verdict", "the verdict"),  # type: ignore[arg-type]
        correction=form.get("correction", "").replace("\r\n", "\n") if form.get("verdict") == "correct" else "",
        why=form.get("why", ""),
        about=form.get("about", ""),
        labels=tuple(filter(None, form.get("labels", "").split(","))),
    )
    if form.get("case") == "1":
        return after("/judge", doors.keep_case(desk, said, state_of(request).person))
    told = doors.judge(desk, said, state_of(request).person, release=form.get("release") == "1")
    return after("/judge", f"{model}: {told}" if model else told)


def vote(request: Request, desk: Desk, form: Form) -> str:
    """What the form of two answers says: which of them is better."""
    better = needed(form, "better", "which answer is better")
    if better not in ("one", "other", "same"):
        raise InputError(f"{better!r} is not a vote: say one, other or same")
    names = [needed(form, each, "a version") for each in ("one", "other")]
    roles = {name.partition("@")[0] for name in names if "@v" in name}
    if len(roles) != 1:
        raise InputError("a vote is between two versions of one role, or one of them and the base")
    tenant, role, _ = version_id(next(name for name in names if "@v" in name))
    one, other = (name.partition("@")[2] if "@v" in name else "base" for name in names)
    said = doors.Compared(
        tenant=tenant,
        role=role,
        prompt=_messages_of(form),
        one=one,
        one_answer=needed(form, "one_answer", "an answer"),
        other=other,
        other_answer=needed(form, "other_answer", "an answer"),
        better=better,  # type: ignore[arg-type]
        blind=form.get("blind") == "1",
    )
    return after(f"/versions/{tenant}/{role}/vibe", doors.vote(desk, said, state_of(request).person))


def _messages_of(form: Form) -> tuple[Mapping[str, str], ...]:
    """The question that a form holds. Raises InputError."""
    try:
        return tuple(
            {"role": str(each["role"]), "content": str(each["content"])} for each in json.loads(form["prompt"])
        )
    except (ValueError, KeyError, TypeError):
        raise InputError("the question of this form is damaged: open the page again") from None


def of_row(desk: Desk, source: RowSource, row: Row) -> Mapping[str, str] | None:
    """The fields by which the answer of a row is judged; None if it is not one text answer of a recipe."""
    messages = [*row.prompt, *row.answers.get("completion", ())]
    plain = all(isinstance(each.get("content"), str) and not each.get("tool_calls") for each in messages)
    role = role_of(desk, source)
    if not row.answers.get("completion") or not row.prompt or not plain or role is None:
        return None
    return {
        "role": "/".join(role),
        "prompt": prompt_field(row.prompt),
        "answer": str(row.answers["completion"][-1]["content"]),
        "about": f"row {row.digest[:16]}",
        "labels": ",".join(labels_of(source, row)),
    }


def prompt_field(messages: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps([{"role": each["role"], "content": each["content"]} for each in messages], ensure_ascii=False)


def generate(request: Request, desk: Desk) -> Response:
    """The form, and a place for each answer; a script fills it."""
    state, asked = state_of(request), request.query_params
    names, why_not = [], ""
    try:
        names = generation.models(state.gateway, state.api_key)
    except ServiceError as error:
        why_not = str(error)
    chosen = [each for each in asked.getlist("model") if each in names]
    samples = min(max(_whole(asked.get("samples"), 1), 1), 4)
    slots = [(model, sample) for model in chosen for sample in range(samples)][:MOST_ANSWERS]
    blind = asked.get("blind") == "1" and len(slots) > 1
    if blind:
        _ORDER.shuffle(slots)
    messages = [{"role": "user", "content": asked.get("prompt", "")}]
    if asked.get("system"):
        messages.insert(0, {"role": "system", "content": asked["system"]})
    trainings: dict[str, list[str]] = {}
    for name in names:
        if ":" in name:
            trainings.setdefault(name.rpartition(":")[0], []).append(name)
    return render(
        request,
        "generate.html",
        names=[name for name in names if ":" not in name],
        trainings=trainings,
        why_not=why_not,
        chosen=chosen,
        slots=slots if asked.get("prompt") else [],
        blind=blind,
        roles=sorted({name.partition("@")[0] for name in chosen if "@" in name}),
        prompt=prompt_field(messages),
    )


async def answer(request: Request) -> Response:
    """One answer, as lines of JSON: {text, logprob}, at last {end} or {problem}."""
    state = state_of(request)
    form = await fields_of(request)
    if form is None:
        return problem(request, "this question holds more than 4 MiB", 413)

    async def lines() -> AsyncIterator[bytes]:
        try:
            messages = json.loads(form.get("prompt", "[]"))
            pieces = generation.answer(
                state.gateway,
                state.api_key,
                form.get("model", ""),
                messages,
                temperature=float(form.get("temperature") or 0),
                max_tokens=min(max(_whole(form.get("max_tokens"), 200), 1), 4096),
                seed=_whole(form.get("seed"), 0),
            )
            async for piece in pieces:
                yield _line({"text": piece.text, "logprob": piece.logprob, "end": piece.end})
        except (EC1Error, ValueError, TypeError, KeyError) as error:
            yield _line({"problem": str(error)})

    return StreamingResponse(lines(), media_type="application/x-ndjson")


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _whole(text: str | None, default: int) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() else default
