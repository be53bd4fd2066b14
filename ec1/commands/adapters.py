"""`ec1 adapters`: what was trained, which version is in use, and manual control of it."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ec1.adapters.decisions import ReleaseDecision
from ec1.adapters.manifest import AdapterManifest
from ec1.adapters.registry import AdapterRegistry
from ec1.commands.shell import DONE, FAILED, Options, err, out, print_answer, print_json, printable
from ec1.errors import InputError
from ec1.night.stores import open_registry
from ec1.plural import counted
from ec1.queries import adapters as queries
from ec1.who import who_acts

if TYPE_CHECKING:
    from ec1.night.experiments.trial import Tried

adapters_app = typer.Typer(
    help="Adapters: what was trained, from what, which version is in use, whether it is intact.", no_args_is_help=True
)

_BECAME = ("in_use", "withdrawn", "trials", "stopped")

Name = Annotated[str, typer.Argument(help="tenant/role@vN")]
Reason = Annotated[str, typer.Option(help="the reason, recorded with the change")]


def _registry(context: typer.Context) -> AdapterRegistry:
    options: Options = context.obj
    return open_registry(options.deployment(), options.home)


def _role(name: str) -> tuple[str, str]:
    """Parse `tenant/role`. Raises InputError."""
    match = re.fullmatch(r"([a-z0-9-]{1,64})/([a-z0-9-]{1,64})", name)
    if match is None:
        raise InputError(f"{name!r} is not a role: write tenant/role")
    return match[1], match[2]


@adapters_app.command("list")
def adapters_list(context: typer.Context, as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """All versions, newest first; `*` marks the one in use, `x` one that was withdrawn."""
    print_answer(queries.versions(_registry(context)).items, as_json, _version_lines)


def _version_lines(found: tuple[queries.VersionSummary, ...]) -> Iterator[str]:
    if not found:
        yield "no adapter has been published yet"
    for each in found:
        state = f"{'*' if each.in_use else 'x' if each.withdrawn else ' '} {each.name:<36}"
        if each.damaged:
            yield f"{state} damaged: {each.damaged}"
        else:
            yield f"{state} night {each.night}  {each.objective:<4} {each.tuples:>6} tuples  {each.base_model}"


@adapters_app.command("show")
def adapters_show(context: typer.Context, name: Name) -> None:
    """One version's manifest (recipe, dataset, snapshot, scores, files), and what became of it: trials, withdrawal."""
    page = queries.version_page(_registry(context), queries.version_id(name))
    print_json({**page.manifest.model_dump(mode="json"), **{key: getattr(page, key) for key in _BECAME}})


@adapters_app.command("sign")
def adapters_sign(
    context: typer.Context,
    reason: Reason,
    name: Annotated[
        str | None, typer.Argument(help="tenant/role@vN; default: every version without a signature")
    ] = None,
) -> None:
    """Vouch for versions that no trusted key has signed, such as those from before there were signatures."""
    registry = _registry(context)
    for tenant, role, version in [queries.version_id(name)] if name else queries.version_ids(registry):
        signed = registry.sign(tenant, role, version, reason, who_acts())
        out.print(f"{tenant}/{role}@v{version}: {'signed' if signed else 'was signed before'}")


@adapters_app.command("verify")
def adapters_verify(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="tenant/role@vN; default: every version")] = None,
) -> None:
    """Check signature, files and decisions of one version, or of all, and that they are a LoRA adapter."""
    registry = _registry(context)
    damaged = 0
    for tenant, role, version in [queries.version_id(name)] if name else queries.version_ids(registry):
        problems = registry.verify(tenant, role, version)
        damaged += bool(problems)
        out.print(f"{tenant}/{role}@v{version}: {'; '.join(problems) or 'intact'}")
    sys.exit(FAILED if damaged else DONE)


@adapters_app.command("repair")
def adapters_repair(
    context: typer.Context,
    role: Annotated[str, typer.Argument(help="tenant/role")],
    reason: Annotated[str | None, typer.Option(help="why to go on; without it nothing is changed")] = None,
) -> None:
    """Show what is wrong with the decisions about a role, and go on without what was changed or is gone."""
    registry, (tenant, name) = _registry(context), _role(role)
    faults = registry.faults(tenant, name)
    for fault in faults:
        said = next(_decision_lines([fault.earlier])) if fault.earlier else "left out"
        out.print(f"decision {fault.number} {fault.what}: {said}")
    if not faults:
        out.print(f"{role}: every decision is as it was made")
        return
    if reason is None:
        out.print("to go on with what is not left out, give a --reason; read `ec1 adapters history` then")
        sys.exit(FAILED)
    registry.repair(tenant, name, faults, reason, who_acts())
    incumbent = registry.incumbent(tenant, name)
    out.print(f"{incumbent.name} is in use" if incumbent else "the base serves without an adapter")


@adapters_app.command("history")
def adapters_history(
    context: typer.Context,
    role: Annotated[str, typer.Argument(help="tenant/role")],
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """What was published and decided, in the order of time: who, when, from, to, why."""
    print_answer(_registry(context).history(*_role(role)), as_json, _decision_lines)


def _decision_lines(decisions: list[ReleaseDecision]) -> Iterator[str]:
    for each in decisions:
        before, after = (f"v{version}" if version else "base" for version in (each.before, each.after))
        move = after if each.action in ("publish", "withdraw") else f"{before} to {after}"
        if each.action in ("trial", "end-trial", "repair"):
            move = " ".join(f"{arm}={weight}" for arm, weight in each.arms.items()) or before
        yield (
            f"{each.at:%Y-%m-%d %H:%M}  {each.action:<9} {move:<12} {printable(each.who):<12} {printable(each.reason)}"
        )


@adapters_app.command("lineage")
def adapters_lineage(
    context: typer.Context, name: Name, as_json: Annotated[bool, typer.Option("--json")] = False
) -> None:
    """Follow a version down to the tuples, commits and documents that it learnt from."""
    options: Options = context.obj
    found = queries.lineage_of(_registry(context), options.home, *queries.version_id(name))
    print_answer(found, as_json, _lineage_lines)


def _lineage_lines(found: queries.Lineage, indent: str = "") -> Iterator[str]:
    yield (
        f"{indent}{found.name}: {found.method}, recipe {found.recipe.name} version {found.recipe.version}, "
        f"night {found.night}, code {found.git_commit or 'unknown'}"
    )
    if found.missing:
        yield f"{indent}  {found.missing}"
    else:
        yield (
            f"{indent}  dataset {found.dataset[:12]} of snapshot {found.bucket} {found.snapshot[:12]}: "
            f"{len(found.tuples)} tuples (--json lists them)"
        )
        for what in ("commit", "document", "session", "author", "judgement"):
            values = sorted({value for origin in found.tuples if (value := getattr(origin, what))})
            if values:
                shown = ", ".join(printable(value[:48]) for value in values[:5]) + (", …" if len(values) > 5 else "")
                yield f"{indent}    {len(values)} {what}{'s' if len(values) > 1 else ''}: {shown}"
    for parent in found.parents:
        yield f"{indent}  rests on"
        yield from _lineage_lines(parent, f"{indent}    ")


@adapters_app.command("containing")
def adapters_containing(
    context: typer.Context,
    what: Annotated[str, typer.Argument(help="a tuple's digest, key:value such as source_commit:…, or an author")],
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Which versions learnt from a tuple, a source or an author, themselves or through what they rest on."""
    options: Options = context.obj
    print_answer(queries.containing(_registry(context), options.home, what), as_json, _learner_lines)


def _learner_lines(found: queries.Learners) -> Iterator[str]:
    for name, tuples in found.versions.items():
        yield f"{name}: {counted(tuples, 'tuple') if tuples else 'through a version that it rests on'}"
    for name in found.unknown:
        yield f"{name}: unknown, its data is not in this home"
    yield f"{counted(len(found.versions), 'version')} learnt from it"


@adapters_app.command("promote")
def adapters_promote(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="tenant/role@vN, or tenant/role@base for none")],
    reason: Reason,
) -> None:
    """Make a version the one in use, or the base without one, until a newer one is published."""
    if name.endswith("@base"):
        tenant, role = _role(name.removesuffix("@base"))
        _registry(context).promote_base(tenant, role, reason, who_acts())
        out.print(f"{tenant}/{role}: the base serves without an adapter")
        return
    manifest = _registry(context).promote(*queries.version_id(name), reason, who_acts())
    out.print(f"{manifest.name} is in use")


@adapters_app.command("pin")
def adapters_pin(context: typer.Context, name: Name, reason: Reason) -> None:
    """Make a version the one in use until it is unpinned, whatever nights publish."""
    manifest = _registry(context).pin(*queries.version_id(name), reason, who_acts())
    out.print(f"{manifest.name} is in use, and stays so")


@adapters_app.command("unpin")
def adapters_unpin(
    context: typer.Context, role: Annotated[str, typer.Argument(help="tenant/role")], reason: Reason
) -> None:
    """Let the newest version be the one in use again."""
    manifest = _registry(context).unpin(*_role(role), reason, who_acts())
    out.print(f"{manifest.name} is in use" if manifest else "the base serves without an adapter")


@adapters_app.command("rollback")
def adapters_rollback(
    context: typer.Context, role: Annotated[str, typer.Argument(help="tenant/role")], reason: Reason
) -> None:
    """Go back to the version before the one in use, until a newer one is published."""
    manifest = _registry(context).rollback(*_role(role), reason, who_acts())
    out.print(f"{manifest.name} is in use")


@adapters_app.command("quarantine")
def adapters_quarantine(context: typer.Context, name: Name, reason: Reason) -> None:
    """Withdraw a published version permanently; its files are kept."""
    registry, (tenant, role, version) = _registry(context), queries.version_id(name)
    registry.withdraw(tenant, role, version, reason, who_acts())
    incumbent = registry.incumbent(tenant, role)
    now = f"{incumbent.name} is in use" if incumbent else "the base serves without an adapter"
    out.print(f"{name} is withdrawn; {now}")


@adapters_app.command("try")
def adapters_try(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="tenant/role@vN, or tenant/role for the version in use")],
    prompt: Annotated[str | None, typer.Argument(help="what to ask; default: a held-out prompt of the role")] = None,
    prompts: Annotated[
        Path | None, typer.Option(help='a prompt a line; or JSON Lines (.jsonl) with "prompt", and "answer" if known')
    ] = None,
    url: Annotated[str | None, typer.Option(help="an `ec1 serve` that is asked; default: this machine's")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="of an answer")] = 128,
    wait: Annotated[float, typer.Option(min=0, help="seconds to wait for the GPU, if a night has it")] = 60,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Ask the base and a version the same, side by side. `ec1 serve` answers if it runs; EC1_API_KEY is its key."""
    from ec1.launch.process import inherited
    from ec1.night.experiments.trial import Prompt, prompts_in, try_version

    if prompt and prompts:
        raise InputError("a prompt, or --prompts with a file of them; not both")
    options: Options = context.obj
    manifest = _version_or_in_use(_registry(context), name)
    roles = {(each.recipe.tenant, each.recipe.role): each.recipe for each in options.recipes()}
    recipe = roles.get((manifest.tenant, manifest.role))
    asked = prompts_in(prompts) if prompts else [Prompt([{"role": "user", "content": prompt}])] if prompt else []
    tried = try_version(
        options.deployment(),
        options.home,
        manifest,
        asked,
        system_prompt=recipe.data.system_prompt if recipe else None,
        max_tokens=max_tokens,
        wait_seconds=wait,
        env=inherited(options.environment),
        url=url,
        api_key=options.environment.get("EC1_API_KEY"),
        progress=err.print,
    )
    if as_json:
        print_json(tried if prompts else tried[0])
        return
    for each in tried:
        _print_side_by_side(manifest.base_model.id, each)
    if judged := [each for each in tried if prompts and each.expected is not None]:
        right, base = sum(bool(each.adapter_right) for each in judged), sum(bool(each.base_right) for each in judged)
        out.print(f"right answers of {len(judged)}: {right}, base {base}")


def _print_side_by_side(base: str, tried: "Tried") -> None:
    from rich.table import Table
    from rich.text import Text

    def shown(text: str, *, cut: bool = False) -> Text:
        lines = "\n".join(printable(line) for line in text.split("\n"))
        return Text(lines + (" … (cut: --max-tokens)" if cut else "") if lines else "(nothing)")

    out.print("prompt:", shown(tried.prompt))
    table = Table(show_lines=True, expand=True)
    words = {None: "", True: ": right", False: ": wrong"}
    table.add_column(Text(f"base {base}{words[tried.base_right]}"))
    table.add_column(Text(f"{tried.name}{words[tried.adapter_right]}"))
    table.add_row(shown(tried.base.text, cut=tried.base.cut), shown(tried.adapter.text, cut=tried.adapter.cut))
    out.print(table)
    if tried.expected is not None:
        out.print("right answer:", shown(tried.expected))


def _version_or_in_use(registry: AdapterRegistry, name: str) -> AdapterManifest:
    """The manifest of `tenant/role@vN`, or of the version in use of `tenant/role`. Raises InputError."""
    if "@" in name:
        return registry.get(*queries.version_id(name))
    incumbent = registry.incumbent(*_role(name))
    if incumbent is None:
        raise InputError(f"{name} has no version in use: the base serves without an adapter")
    return incumbent


@adapters_app.command("pull")
def adapters_pull(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="tenant/role@vN, or tenant/role for the version in use")],
) -> None:
    """Download a version, check it against its manifest, and print its folder."""
    registry = _registry(context)
    manifest = _version_or_in_use(registry, name)
    assert manifest.version is not None
    folder: Path = registry.fetch(manifest.tenant, manifest.role, manifest.version)
    out.print(str(folder))


@adapters_app.command("clean")
def adapters_clean(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would be removed")] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Remove old versions, weights of runs and quarantined candidates, by the deployment's `retention`."""
    from ec1.night.operations.retention import clean

    options: Options = context.obj
    removed = clean(_registry(context), options.home, options.deployment().retention, dry_run=dry_run)
    if as_json:
        print_json(removed)
        return
    for each in removed:
        out.print(f"  {each.what:<12} {each.name:<48} {each.bytes / 2**20:8.1f} MiB  {each.why}")
    verb = "would free" if dry_run else "freed"
    out.print(f"{len(removed)} removed, {verb} {sum(each.bytes for each in removed) / 2**20:.1f} MiB")
