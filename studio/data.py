"""The pages of data: sources, their rows, one row, how they are spread, two of them compared."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from starlette.requests import Request
from starlette.responses import Response

from ec1.errors import EC1Error, InputError
from ec1.queries import row_facts, row_index
from ec1.queries.desk import Desk
from ec1.queries.import_preview import preview_import
from ec1.queries.row_index import Indexing, RowFilter
from ec1.queries.row_scores import ScoreOrder, row_scores
from ec1.queries.rows import Row, RowSource, buckets, count_of, open_source, sources
from studio import judgement, shown
from studio.web import Form, render, state_of

PAGE = 50
_MOST_ASKED = 6_000
"""Characters of a question in an address."""


def overview(request: Request, desk: Desk) -> Response:
    found = sources(desk)
    return render(
        request,
        "data.html",
        snapshots=[each for each in found if each.kind == "snapshot"],
        datasets=[each for each in found if each.kind == "dataset"],
        buckets=buckets(desk),
        count_of=count_of,
    )


def _key(request: Request) -> str:
    parts = request.path_params
    return f"snapshot/{parts['bucket']}/{parts['digest']}" if "bucket" in parts else f"dataset/{parts['digest']}"


def _filter(request: Request) -> RowFilter:
    asked = request.query_params
    return RowFilter(
        **{name: asked.get(name, "") for name in ("text", "side", "file", "kind", "reason")},
        class_=asked.get("class", ""),
        order=asked.get("order") or "number",  # type: ignore[arg-type]
        down=asked.get("down") == "1",
    )


def rows(request: Request, desk: Desk) -> Response:
    key, wanted = _key(request), _filter(request)
    source = open_source(desk, key)
    found = row_index.find(desk, key, wanted, PAGE, request.query_params.get("after") or None)
    if isinstance(found, Indexing):
        return _waiting(request, found)
    start = int(request.query_params.get("after") or 0)
    return render(
        request,
        "rows.html",
        source=source.summary,
        key=key,
        found=found,
        start=start,
        page_size=PAGE,
        wanted=wanted,
        beginning=_beginning,
        indexed=row_index.ready(desk, source),
        orders=_orders(source.summary.kind, row_index.has_scores(desk, source)),
    )


def _orders(kind: str, scored: bool) -> list[tuple[str, str]]:
    orders = [("number", "as they stand"), ("length", "length in characters")]
    orders += [("score", "the score that came with them")] if scored else []
    return [*orders, ("tokens", "length in tokens") if kind == "dataset" else ("created", "when they were made")]


def _beginning(row: Row) -> tuple[str, str]:
    """What stands for a row in a list: its question and its answer, or why it was left out."""
    if not row.answers:
        return row.reason or "", ""
    asked = next((str(each.get("content")) for each in reversed(row.prompt) if each.get("role") == "user"), "")
    first = next(iter(row.answers.values()))
    return asked[:2000], str(first[-1].get("content") or "")[:2000] if first else ""


def _waiting(request: Request, progress: Indexing) -> Response:
    if progress.problem:
        raise InputError(f"no index could be built: {progress.problem}")
    source = progress.source
    return render(request, "waiting.html", 202, progress=progress, source=source, total=count_of(source))


def opened_row(request: Request, desk: Desk) -> tuple[str, RowSource, Row, Row | None]:
    """The row of an address: its source's key, the source, the row, and the tuple that a dataset's row was made of,
    where its snapshot is still here. Raises InputError."""
    key, number = _key(request), int(request.path_params["number"])
    source = open_source(desk, key)
    found = source.at([number])
    if not found:
        raise InputError(f"there is no row {number}: this source has {count_of(source.summary):,}")
    (it,) = found
    made_of = str(source.summary.facts["snapshot"]) if source.summary.kind == "dataset" else ""
    return key, source, it, row_facts.source_row(desk, it, made_of) if made_of else None


def row(request: Request, desk: Desk) -> Response:
    key, source, it, tuple_ = opened_row(request, desk)
    number, original = it.number, tuple_ if it.reason and it.raw is None else None
    cleaned = None
    scrubbed = tuple_ is not None and not it.reason and source.summary.facts.get("scrubbed")
    if scrubbed and tuple_ and _everything_said(tuple_) != _everything_said(it):
        cleaned = shown.differences(_everything_said(tuple_), _everything_said(it))
    pieces: tuple[row_facts.TokenPiece, ...] = ()
    why_not = ""
    if request.query_params.get("view") == "tokens":
        try:
            pieces = row_facts.tokens_of(desk, key, number)
        except EC1Error as error:
            why_not = str(error)
    before, behind = row_index.neighbours(desk, key, number)
    pair = None
    if "chosen" in it.answers and "rejected" in it.answers:
        pair = shown.differences(_said(it, "rejected"), _said(it, "chosen"))
    return render(
        request,
        "row.html",
        source=source.summary,
        key=key,
        row=it,
        original=original,
        pieces=pieces,
        why_not=why_not,
        before=before,
        behind=behind,
        pair=pair,
        cleaned=cleaned,
        learners=row_facts.learners_of(desk, it.digest) if request.query_params.get("learnt") else None,
        judged=None if state_of(request).read_only else judgement.of_row(desk, source, original or it),
        whole=request.query_params.get("whole") == "1",
        asked=_question((original or it).prompt),
    )


def _question(prompt: Sequence[Mapping[str, Any]]) -> dict[str, str] | None:
    """A row's question as the form of Generate takes it; None if it is more than one, or too long for an address."""
    texts = [(str(each.get("role")), each.get("content")) for each in prompt]
    plain = {role: text for role, text in texts if isinstance(text, str)}
    if [role for role, _ in texts if role != "system"] != ["user"] or len(plain) != len(texts):
        return None
    if sum(map(len, plain.values())) > _MOST_ASKED:
        return None
    return {"prompt": plain["user"], **({"system": plain["system"]} if plain.get("system") else {})}


def _everything_said(row: Row) -> str:
    return "\n\n".join(str(each.get("content") or "") for part in (row.prompt, *row.answers.values()) for each in part)


def _said(row: Row, side: str) -> str:
    return "\n\n".join(str(each.get("content") or "") for each in row.answers[side])


def counts(request: Request, desk: Desk) -> Response:
    key = _key(request)
    source = open_source(desk, key)
    found = row_index.counts(desk, key, _filter(request))
    if isinstance(found, Indexing):
        return _waiting(request, found)
    return render(request, "counts.html", source=source.summary, key=key, counts=found)


def scores(request: Request, desk: Desk) -> Response:
    key, asked = _key(request), request.query_params
    order = asked.get("order") or "loss"
    if order not in get_args(ScoreOrder):
        raise InputError(f"held-out rows have no order {order!r}: there are {', '.join(get_args(ScoreOrder))}")
    found = row_scores(desk, key, asked.get("run") or None, order, PAGE)  # type: ignore[arg-type]
    source = open_source(desk, key).summary
    return render(request, "scores.html", source=source, key=key, found=found, beginning=_beginning)


def import_form(request: Request, desk: Desk) -> Response:
    return render(request, "import.html", found=None, text="", kind="jsonl", why_not="")


def import_preview(request: Request, desk: Desk, form: Form) -> Response:
    """What an import would make of the rows in the form."""
    text, kind, found, why_not = form.get("text", ""), form.get("kind", "jsonl"), None, ""
    try:
        found = preview_import(text, kind, PAGE)
    except InputError as error:
        # Beside the rows, so that they can be mended.
        why_not = str(error).partition(": ")[2] or str(error)
    return render(request, "import.html", found=found, text=text, kind=kind, why_not=why_not)


def compare(request: Request, desk: Desk) -> Response:
    one, other = request.query_params.get("one", ""), request.query_params.get("other", "")
    found = sources(desk)
    result = row_index.compare(desk, one, other) if one and other else None
    if isinstance(result, Indexing):
        return _waiting(request, result)
    return render(request, "compare.html", sources=found, one=one, other=other, result=result, beginning=_beginning)
