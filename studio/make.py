"""The pages of making rows: recipes of generation with their samples, and rows that wait for somebody to admit them."""

from starlette.requests import Request
from starlette.responses import Response

from ec1.errors import InputError
from ec1.queries import doors, made
from ec1.queries.desk import Desk
from ec1.queries.made import KeptRecipe
from ec1.queries.vibe import GatewayAddress
from studio.web import Form, after, needed, render, state_of


def overview(request: Request, desk: Desk) -> Response:
    return render(request, "make.html", generations=made.generations(desk), recipes=made.recipes(desk))


def admit(request: Request, desk: Desk, form: Form) -> str:
    return after("/make", doors.admit_rows(desk, request.path_params["role"], request.path_params["digest"]))


def new(request: Request, desk: Desk) -> Response:
    return _page(request, desk, "", made.STARTER, None)


def recipe(request: Request, desk: Desk) -> Response:
    kept = made.recipe(desk, request.path_params["role"], request.path_params["name"])
    return _page(request, desk, kept.name, kept.text, kept)


def _page(request: Request, desk: Desk, name: str, text: str, kept: KeptRecipe | None) -> Response:
    sample = made.sample_made(kept) if kept else None
    work = state_of(request).background.state(_work(kept.recipe.role, kept.name)) if kept else None
    return render(request, "recipe.html", name=name, text=text, kept=kept, sample=sample, work=work)


def save(request: Request, desk: Desk, form: Form) -> str:
    """What the form of a recipe says: keep it, and have a sample made if that was asked for."""
    text = needed(form, "text", "the recipe") + "\n"
    role, name = doors.save_generation(desk, needed(form, "name", "the recipe's name"), text)
    return _sampled(request, desk, role, name) if form.get("action") == "sample" else after(f"/make/{role}/{name}")


def decide(request: Request, desk: Desk, form: Form) -> str:
    role, name = request.path_params["role"], request.path_params["name"]
    action = needed(form, "action", "what to do")
    if action not in ("accept", "withdraw"):
        raise InputError(f"{action!r} is nothing that can be done with a recipe")
    said = doors.decide_generation(desk, role, name, action, state_of(request).person)  # type: ignore[arg-type]
    return after(f"/make/{role}/{name}", said)


def _sampled(request: Request, desk: Desk, role: str, name: str) -> str:
    state = state_of(request)
    gateway = GatewayAddress(state.gateway, state.api_key)
    begun = state.background.begin(
        _work(role, name), lambda tell: doors.sample_generation(desk, role, name, gateway, state.person, tell)
    )
    return after(f"/make/{role}/{name}", "" if begun else "a sample of this recipe is being made already")


def _work(role: str, name: str) -> str:
    return f"sample of {role}/{name}"
