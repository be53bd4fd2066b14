"""The pages of the published graph: entities, the sentences that name them, what stands around them, and decisions."""

import math
from collections.abc import Sequence
from itertools import islice
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from ec1.errors import InputError
from ec1.plural import counted
from ec1.queries import decisions, doors
from ec1.queries import graph as queries
from ec1.queries.desk import Desk
from ec1.queries.entity_history import past_of
from ec1.queries.graph_walks import what_changed
from ec1.queries.held_back import held_sentences, last_words
from studio.shown import short
from studio.web import Form, after, needed, render, state_of

PAGE = 30
_SENTENCES = 20
_AROUND = 12
_KNOWN = 300
_PAIRS = 10
_HELD = 200
_CHANGED = 100
_DOCUMENTS = 5


def search(request: Request, desk: Desk) -> Response:
    asked = request.query_params
    try:
        with queries.open_graph(desk.home, desk.deployment, desk.labels) as reader:
            classes, stats = reader.classes(), reader.stats()
            found = None
            if text := asked.get("text", "").strip():
                found = queries.search(reader, text, asked.get("class") or None, PAGE, asked.get("after") or None)
    except InputError as error:
        if desk.home.published_graph.is_file():
            raise
        return render(request, "graph.html", why_not=str(error), found=None, classes=[], stats=None)
    return render(request, "graph.html", why_not="", found=found, classes=classes, stats=stats)


def entity(request: Request, desk: Desk) -> Response:
    key = request.query_params.get("key", "")
    whole = request.query_params.get("whole") == "1"
    quotes = queries.quotes_of(desk.home, desk.deployment)
    with queries.open_graph(desk.home, desk.deployment, desk.labels) as reader:
        it, *others = queries.show(reader, key, None if whole else _SENTENCES, quotes)
        around = queries.neighbours(reader, it.key, _KNOWN)
    once: dict[str, queries.Neighbour] = {}
    for each in around:
        once.setdefault(each.key, each)
    drawn = list(once.values())[:_AROUND]
    return render(
        request,
        "entity.html",
        it=it,
        others=others,
        around=around[:_AROUND],
        drawing=neighbourhood(it, drawn),
        kinds=sorted({it.entity_class, *(each.entity_class for each in drawn)}),
        href=href,
        lines=lambda quote: _lines(it, around, quote),
    )


def _lines(it: queries.EntityPage, around: Sequence[queries.Neighbour], quote: queries.Quote) -> str:
    """What is known of the names in a sentence, a line `Class: name` each, for a person to correct."""
    text = quote.before + quote.name + quote.after
    found = {quote.name: it.entity_class}
    found |= {each.name: each.key.partition(":")[0] for each in around if each.name in text}
    return "\n".join(f"{entity_class}: {name}" for name, entity_class in found.items())


def correct(request: Request, desk: Desk, form: Form) -> str:
    """What a form of `entity.html` says of the names in a sentence."""
    key, start = needed(form, "key", "the entity"), form.get("start", "")
    if not (start.isascii() and start.isdecimal()):
        raise InputError("the place of this sentence is damaged: open the page again")
    said = doors.correct_names(
        desk, key, needed(form, "path", "the document"), int(start), form.get("names", ""), state_of(request).person
    )
    return after("/graph/entity", said, key=key)


def history(request: Request, desk: Desk) -> Response:
    past = past_of(desk, request.query_params.get("key", ""))
    return render(request, "history.html", it=past.now, past=past, href=href, most=_DOCUMENTS)


def decide_history(request: Request, desk: Desk, form: Form) -> str:
    """What a form of `history.html` says: that two are two, or that a decision about them is taken back."""
    one, other = needed(form, "one", "an entity"), needed(form, "other", "an entity")
    key, action = needed(form, "key", "the entity"), needed(form, "action", "what to do")
    if action == "undo":
        said = doors.undo_pair(desk, one, other)
    elif action == "part":
        said = doors.decide_pair(desk, one, other, same=False, reason=needed(form, "reason", "how it is known"))
    else:
        raise InputError(f"{action!r} is nothing that can be done here: part or undo")
    return after("/graph/history", said, key=key)


def href(key: str) -> str:
    """The address of an entity."""
    return "/graph/entity?" + urlencode({"key": key})


def neighbourhood(it: queries.Entity, around: Sequence[queries.Neighbour]) -> Markup:
    """An entity and what is next to it, as a drawing whose names are links."""
    lines, nodes = [], []
    for number, each in enumerate(around):
        angle = 2 * math.pi * number / len(around) - math.pi / 2
        aside, x, y = math.cos(angle), 200 + 120 * math.cos(angle), 150 + 115 * math.sin(angle)
        # Outwards where others stand close above it; in the middle where it would leave the drawing.
        end = "middle" if abs(aside) < 0.2 or abs(aside) > 0.75 else "start" if aside > 0 else "end"
        lines.append(
            Markup('<line class="axis" x1="200" y1="150" x2="{:.0f}" y2="{:.0f}" stroke-width="{}"/>').format(
                x, y, min(1 + each.documents, 6)
            )
        )
        nodes.append(
            Markup(
                '<a href="{href}"><title>{said}</title><circle class="node k-{kind}" cx="{x:.0f}" cy="{y:.0f}" r="5"/>'
                '<text x="{tx:.0f}" y="{ty:.0f}" text-anchor="{end}">{name}</text></a>'
            ).format(
                x=x, y=y, tx=x + {"start": 8, "end": -8, "middle": 0}[end], ty=y + (18 if y > 150 else -10), end=end,
                href=href(each.key), kind=each.entity_class, name=short(each.name, 22),
                said=f"{each.entity_class} {each.name}: {each.how}, {counted(each.documents, 'document')}",
            )
        )  # fmt: skip
    middle = Markup(
        '<circle class="node k-{}" cx="200" cy="150" r="8"/><text x="200" y="172" text-anchor="middle">{}</text>'
    ).format(it.entity_class, short(it.name, 30))
    return Markup('<svg class="around" viewBox="-40 0 480 300" role="group" aria-label="Neighbours">{}</svg>').format(
        Markup("").join([*lines, middle, *nodes])
    )


def held(request: Request, desk: Desk) -> Response:
    queries.check_sees_all(desk.deployment, desk.labels, "this page")
    sentences = list(islice(held_sentences(desk.home), _HELD)) if desk.home.published_graph.is_file() else []
    return render(request, "held.html", sentences=sentences, decided=last_words(desk.home))


def decide_held(request: Request, desk: Desk, form: Form) -> str:
    action = needed(form, "action", "what to do")
    if action not in ("release", "hold"):
        raise InputError(f"{action!r} is nothing that can be done with a sentence: release or hold")
    sentence, who = needed(form, "sentence", "the sentence"), state_of(request).person
    return after("/graph/held", doors.decide_sentence(desk, sentence, action, who))  # type: ignore[arg-type]


def changes(request: Request, desk: Desk) -> Response:
    with queries.open_graph(desk.home, desk.deployment, desk.labels) as reader:
        found = what_changed(reader, request.query_params.get("night") or None, _CHANGED)
    return render(request, "changes.html", found=found, href=href, most=_CHANGED)


def review(request: Request, desk: Desk) -> Response:
    found = decisions.pairs(desk, _PAIRS)
    reason = f"{state_of(request).person} read the sentences in Studio"
    return render(request, "review.html", found=found, reason=reason, href=href)


def decide(request: Request, desk: Desk, form: Form) -> str:
    verdict = needed(form, "verdict", "the decision")
    if verdict not in ("same", "different"):
        raise InputError(f"{verdict!r} is not a decision: say same or different")
    one, other = needed(form, "one", "an entity"), needed(form, "other", "an entity")
    reason = needed(form, "reason", "how it is known")
    return after("/graph/review", doors.decide_pair(desk, one, other, same=verdict == "same", reason=reason))
