"""The pages of versions: which are in use, what the gate said, where one comes from, and decisions about them."""

from starlette.requests import Request
from starlette.responses import Response

from ec1.errors import EC1Error
from ec1.queries import adapters
from ec1.queries.desk import Desk
from ec1.queries.doors import decide_version
from ec1.queries.feedback import votes_of
from studio.judgement import prompt_field
from studio.web import Form, after, needed, render, state_of

_SHOWN = 12


def overview(request: Request, desk: Desk) -> Response:
    roles: dict[str, list[adapters.VersionSummary]] = {}
    for each in adapters.versions(desk.registry).items:
        roles.setdefault(each.name.partition("@")[0], []).append(each)
    return render(request, "versions.html", roles=roles)


def role(request: Request, desk: Desk) -> Response:
    tenant, name = request.path_params["tenant"], request.path_params["role"]
    found = [each for each in adapters.versions(desk.registry).items if each.name.startswith(f"{tenant}/{name}@")]
    history = list(reversed(desk.registry.history(tenant, name)))
    return render(request, "role.html", tenant=tenant, role=name, versions=found, history=history)


def version(request: Request, desk: Desk) -> Response:
    parts = request.path_params
    name = f"{parts['tenant']}/{parts['role']}@v{parts['number']}"
    wanted, registry = adapters.version_id(name), desk.registry
    page = adapters.version_page(registry, wanted)
    lineage, no_lineage = None, ""
    try:
        lineage = adapters.lineage_of(registry, desk.home, *wanted)
    except EC1Error as error:
        no_lineage = str(error)
    votes = votes_of(desk.deployment, desk.home, *wanted[:2])
    return render(
        request,
        "version.html",
        name=name,
        page=page,
        manifest=page.manifest,
        lineage=lineage,
        no_lineage=no_lineage,
        sources=_sources,
        answers=adapters.answers_of(registry, wanted),
        prompt_field=prompt_field,
        votes=next((each for each in votes if each.version == wanted[2]), None),
    )


def _sources(lineage: adapters.Lineage) -> list[tuple[str, list[str], int]]:
    """What the tuples of a version were cut from: the kind, the first names, and how many there are."""
    found = []
    for kind in ("commit", "document", "session", "author", "judgement"):
        values = sorted({value for origin in lineage.tuples if (value := getattr(origin, kind))})
        if values:
            found.append((kind, values[:_SHOWN], len(values)))
    return found


def decide(request: Request, desk: Desk, form: Form) -> str:
    tenant, name = request.path_params["tenant"], request.path_params["role"]
    number = form.get("version", "")
    reason = needed(form, "reason", "the reason")
    said = decide_version(
        desk,
        needed(form, "action", "what to do"),  # type: ignore[arg-type]
        tenant,
        name,
        int(number) if number.isdecimal() else None,
        reason,
        state_of(request).person,
    )
    return after(f"/versions/{tenant}/{name}", said)
