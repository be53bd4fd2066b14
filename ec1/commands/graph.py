"""`ec1 graph`: the published graph for people and programs. Reads only, and never the live file."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ec1.commands.shell import AsJson, Options, out, print_answer, print_json, printable
from ec1.plural import counted
from ec1.queries import answers
from ec1.queries import graph as queries

graph_app = typer.Typer(help="The published graph: what it holds, and the source of each fact.", no_args_is_help=True)

_LABELS = "ec1.labels"


@graph_app.callback()
def _group(
    context: typer.Context,
    labels: Annotated[
        str | None,
        typer.Option("--as", help="access labels to read with, with commas between; '*': all; default: none"),
    ] = None,
) -> None:
    """The published graph: what it holds, and the source of each fact."""
    context.meta[_LABELS] = queries.labels_of(labels)


def _reader(context: typer.Context) -> queries.GraphReader:
    options: Options = context.obj
    return queries.open_graph(options.home, options.deployment(), context.meta[_LABELS])


@graph_app.command()
def stats(context: typer.Context, as_json: AsJson = False) -> None:
    """Count documents, entities and mentions."""
    with _reader(context) as reader:
        print_answer(reader.stats(), as_json, _stats_lines)


def _mentioned(mentions: int, documents: int) -> str:
    return f"{counted(mentions, 'mention')} in {counted(documents, 'document')}"


def _stats_lines(found: queries.GraphStats) -> Iterator[str]:
    states = ", ".join(f"{count} {status}" for status, count in found.statuses.items())
    yield f"  {'documents':<12} {found.documents} ({states})"
    resolved = found.resolved or found.entities
    yield f"  {'entities':<12} {sum(resolved.values())}, under {found.total_entities} names"
    for entity_class, count in resolved.items():
        yield f"    {entity_class:<10} {count}, mentioned {found.mentions_by_class.get(entity_class, 0)} times"
    yield f"  {'mentions':<12} {found.mentions}"


@graph_app.command()
def query(
    context: typer.Context,
    cypher: Annotated[str, typer.Argument(help="such as 'MATCH (e:Entity) RETURN e.name LIMIT 5'")],
    as_json: AsJson = False,
) -> None:
    """Run a Cypher query that only reads; prints tab-separated columns."""
    with _reader(context) as reader:
        rows = reader.query(cypher)
    if len(rows) > queries.QUERY_ROWS:
        rows.pop()
        typer.echo(f"only the first {len(rows):,} rows are shown: add LIMIT, or export the graph", err=True)
    if as_json:
        print_json(rows)
        return
    lines = [list(rows[0]), *(list(row.values()) for row in rows)] if rows else []
    for line in lines:
        typer.echo("\t".join(printable(value) for value in line))


@graph_app.command()
def export(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="where to write documents, entities and mentions as .parquet")],
    as_json: AsJson = False,
) -> None:
    """Write the graph as Parquet; equal graphs give equal bytes."""
    with _reader(context) as reader:
        paths = [str(path) for path in reader.export(folder.expanduser())]
    if as_json:
        print_json(paths)
    else:
        for path in paths:
            out.print(path)


@graph_app.command()
def show(
    context: typer.Context,
    entity: Annotated[str, typer.Argument(help="a name, or a key such as 'Person:maria alvarez'")],
    limit: Annotated[int, typer.Option(min=0, help="mentions to show of each entity; 0: all")] = 50,
    as_json: AsJson = False,
) -> None:
    """Show an entity and the sentences that mention it, each with its document and how it was extracted."""
    options: Options = context.obj
    quotes = queries.quotes_of(options.home, options.deployment())
    with _reader(context) as reader:
        print_answer(queries.show(reader, entity, limit or None, quotes), as_json, _entity_lines)


@graph_app.command()
def schema(context: typer.Context, as_json: AsJson = False) -> None:
    """Show the graph's tables, their columns and what they mean."""
    with _reader(context) as reader:
        print_answer(queries.schema_of(reader), as_json, _schema_lines)


def _schema_lines(tables: list[queries.GraphTable]) -> Iterator[str]:
    for table in tables:
        yield f"{table.table} ({table.kind}): {table.meaning}"
        yield f"    {', '.join(f'{name} {kind}' for name, kind in table.columns.items()) or '(no columns)'}"


@graph_app.command()
def search(
    context: typer.Context,
    text: Annotated[str, typer.Argument(help="part of a name, in any spelling that a document used")],
    entity_class: Annotated[str | None, typer.Option("--class", help="only this class, such as Person")] = None,
    limit: Annotated[int, typer.Option(min=1, help="entities to show, those mentioned most first")] = 20,
    as_json: AsJson = False,
) -> None:
    """Find entities by a part of their name."""
    with _reader(context) as reader:
        print_answer(queries.search(reader, text, entity_class, limit).items, as_json, _found_lines)


def _found_lines(found: tuple[queries.Entity, ...]) -> Iterator[str]:
    for each in found:
        line = f"{printable(each.name)}  {each.entity_class}, {_mentioned(each.mentions, each.documents)}"
        line += f", under {counted(len(each.members), 'name')}" if each.members else ""
        yield f"{line}  [{printable(each.key)}]"


@graph_app.command()
def ask(
    context: typer.Context,
    question: Annotated[str, typer.Argument(help="such as 'Who makes the buttons for the cabs?'")],
    limit: Annotated[int, typer.Option(min=1, help="sentences to show, the best first")] = 3,
    as_json: AsJson = False,
) -> None:
    """Answer a question with the sentences of documents that do, word for word; or say that it is not in the graph."""
    options: Options = context.obj
    quotes = queries.quotes_of(options.home, options.deployment())
    with _reader(context) as reader:
        print_answer(answers.ask(reader, quotes, question, limit), as_json, _answer_lines)


def _answer_lines(found: answers.Answer) -> Iterator[str]:
    for each in found.sources:
        yield f"{each.number}. {printable(' '.join(each.sentence.split()))}"
        said = ", ".join(filter(None, (each.path, each.page, each.date)))
        yield f"   {printable(said)}, characters {each.start} to {each.end}"
    if found.note:
        yield found.note
    if found.unread:
        yield f"{counted(found.unread, 'document')} changed or removed since, and not looked at"


@graph_app.command()
def neighbours(
    context: typer.Context,
    entity: Annotated[str, typer.Argument(help="a key such as 'Person:maria alvarez', or a name")],
    limit: Annotated[int, typer.Option(min=1, help="neighbours of each entity that is reached")] = 20,
    depth: Annotated[int, typer.Option(min=1, max=4, help="steps from the entity, for --graphml and --html")] = 1,
    graphml: Annotated[Path | None, typer.Option(help="write the neighbourhood as GraphML to this file")] = None,
    html: Annotated[Path | None, typer.Option(help="write a page that shows it to this file")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what stands around an entity, or write it as GraphML or as a page to look at."""
    from ec1.graph import neighbours as around

    with _reader(context) as reader:
        near = queries.neighbours(reader, entity, limit)
        if graphml or html:
            graph = around.neighbourhood(reader, entity, depth=depth, limit=limit)
            if graphml:
                around.write_graphml(graph, graphml.expanduser())
            if html:
                around.write_html(graph, html.expanduser())
    print_answer(near, as_json, _neighbour_lines)


def _neighbour_lines(found: tuple[queries.Neighbour, ...]) -> Iterator[str]:
    for each in found:
        often = f" in {counted(each.documents, 'document')}" if each.documents else ""
        yield f"  {each.how}{often}: {printable(each.name)}  [{printable(each.key)}]"


@graph_app.command()
def diff(
    context: typer.Context,
    night: Annotated[str, typer.Argument(help="YYYY-MM-DD")],
    as_json: AsJson = False,
) -> None:
    """Show what a night changed, from the Parquet exports of that night and of the one before."""
    from ec1.graph.differences import difference

    options: Options = context.obj
    queries.check_sees_all(options.deployment(), context.meta[_LABELS], "`ec1 graph diff`")
    found = difference(options.home.graph_exports, night)
    if as_json:
        print_json(found)
        return
    since = f"against {found.since}" if found.since else "is the first that is kept, so all is new"
    out.print(f"{found.night} {since}: mentions {found.mentions_before} -> {found.mentions_after}")
    for label, lines in (
        ("documents added", found.documents_added),
        ("documents changed", found.documents_changed),
        ("entities added", found.entities_added),
        ("entities removed", found.entities_removed),
        ("entities renamed", [f"{key}: {before} -> {after}" for key, before, after in found.renamed]),
        ("joined a cluster", [f"{entity} -> {cluster}" for entity, cluster in found.merged]),
        ("left a cluster", [f"{entity} from {cluster}" for entity, cluster in found.parted]),
    ):
        out.print(f"  {label}: {len(lines)}")
        for line in lines:
            out.print(f"    {printable(line)}")


@graph_app.command()
def mcp(context: typer.Context) -> None:
    """Serve the published graph to an assistant over the Model Context Protocol, on standard input and output."""
    from ec1.commands.mcp_server import graph_server

    options: Options = context.obj
    deployment = options.deployment()
    opened = partial(queries.open_graph, options.home, deployment, context.meta[_LABELS])
    graph_server(opened, queries.quotes_of(options.home, deployment)).run("stdio")


@graph_app.command()
def review(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, help="pairs to show, the likeliest first")] = 50,
    as_json: AsJson = False,
) -> None:
    """List the pairs of entities that may be one; decide in the file that `graph.overrides` names."""
    with _reader(context) as reader:
        found = queries.review(reader, limit)
    if as_json:
        print_json(found.page.items)
        return
    out.print(f"{found.clusters} clusters; {found.pairs} pairs for review")
    for link in found.page.items:
        out.print(_link_line(f"{printable(link.one)} and {printable(link.other)}", link))


@graph_app.command()
def decide(
    context: typer.Context,
    keys: Annotated[list[str] | None, typer.Argument(help="two keys, to say it at once: with one of the flags")] = None,
    same: Annotated[bool, typer.Option("--same", help="the two are one")] = False,
    different: Annotated[bool, typer.Option("--different", help="the two are two, whatever speaks for them")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="take the decision about the two back")] = False,
    reason: Annotated[str | None, typer.Option(help="how that is known")] = None,
    limit: Annotated[int, typer.Option(min=1, help="pairs to ask about, those that would change most first")] = 20,
    sentences: Annotated[int, typer.Option(min=0, help="sentences to show of each side")] = 3,
) -> None:
    """Decide what is one: asks about the pairs that may be, each with its sentences, or takes two keys.

    Answers are written to `graph.overrides`, or overrides.yaml in the home; the next night follows them.
    """
    from ec1.errors import InputError
    from ec1.graph.review import undo_decision, write_decisions

    options: Options = context.obj
    path = options.deployment().graph.overrides or options.home.overrides
    if not keys:
        _ask(context, path, limit, sentences)
        return
    if len(keys) != 2 or same + different + undo != 1:
        raise InputError("name two keys and one of --same, --different and --undo")
    if undo:
        for said in undo_decision(path, keys[0], keys[1]):
            out.print(f"taken back: {printable(said)}")
    else:
        known = reason if reason is not None else typer.prompt("how is that known?")
        write_decisions(path, [(keys[0], keys[1])], same=same, reason=known)
    out.print(f"written to {path}; the next night follows it")


def _ask(context: typer.Context, path: Path, limit: int, sentences: int) -> None:
    from ec1.graph.review import pairs_to_decide, write_decisions

    options: Options = context.obj
    quotes = queries.quotes_of(options.home, options.deployment())
    with _reader(context) as reader:
        pairs = pairs_to_decide(reader, path)
        out.print(f"{len(pairs)} pairs to decide; answers go to {path}")
        asked = 0
        while pairs and asked < limit:
            asked += 1
            pair, alike = pairs[0], [each for each in pairs if each.pattern == pairs[0].pattern]
            out.print(f"\n{asked}. {counted(pair.weight, 'mention')} would change hands")
            for side in (pair.one, pair.other):
                out.print(f"  {printable(side.name)}  [{printable(side.key)}], {counted(side.mentions, 'mention')}")
                for mention in reader.mentions_of(side.key)[:sentences]:
                    for line in _evidence_lines(replace(mention, quote=quotes.of(mention))):
                        out.print(line)
            out.print(_link_line("why: ", pair.link))
            all_of = f", [a]ll {len(alike)} of this pattern are, n[o]ne of them is" if len(alike) > 1 else ""
            question = f"one and the same? [y]es, [n]o{all_of}, [s]kip, [q]uit"
            answer = typer.prompt(question, default="s").strip().lower()[:1]
            if answer == "q":
                break
            decided = alike if answer in ("a", "o") else [pair]
            if answer in ("y", "n", "a", "o"):
                known = typer.prompt("how is that known?")
                same = answer in ("y", "a")
                write_decisions(path, [(each.one.key, each.other.key) for each in decided], same=same, reason=known)
            pairs = [each for each in pairs if each not in decided]


def _link_line(before: str, link: queries.Link) -> str:
    but = f"; {link.veto}" if link.veto else ""
    return f"  {before} ({link.score:.1f} bits: {printable(f'{link.reasons}{but}')})"


def _entity_lines(found: tuple[queries.EntityPage, ...]) -> Iterator[str]:
    for each in found:
        yield (
            f"{printable(each.name)}  {each.entity_class}, {_mentioned(each.mentions, each.documents)}, "
            f"confidence up to {each.confidence:.2f}  [{printable(each.key)}]"
        )
        for joint in each.joined:
            yield f"  one: {printable(joint.one)} and {printable(joint.other)}, {counted(joint.mentions, 'mention')}"
            yield f"    why: {printable(joint.why)}"
            for sentence in joint.sentences:
                yield from _sentence_lines(sentence)
            yield f"    undo: {printable(joint.undo)}"
        for link in each.links:
            ours = link.one in (each.members or (each.key,))
            yield _link_line(f"{link.band} {printable(link.other if ours else link.one)}", link)
        for relation in each.relations:
            yield f"\n  {printable(f'{relation.subject} {relation.relation} {relation.object}')}"
            yield from _evidence_lines(relation)
        for mention in each.evidence:
            yield ""
            yield from _evidence_lines(mention)
        if more := each.mentions - len(each.evidence):
            yield f"\n  and {more} more; --limit 0 shows all"
        yield ""


def _evidence_lines(found: queries.Evidence) -> Iterator[str]:
    """Where a mention or a relation stands, how it was found, and the sentence with it marked."""
    place = f", {found.quote.place}" if found.quote is not None and found.quote.place else ""
    yield (
        f"  {printable(found.path)}{place}  {found.document_id}, night {found.night}, characters {found.start} to "
        f"{found.end}, confidence {found.confidence:.2f}, {found.model}, extractor {found.fingerprint[:12]}"
    )
    yield from _sentence_lines(found)


def _sentence_lines(found: queries.Evidence) -> Iterator[str]:
    if (quote := found.quote) is not None:
        sentence = f"{quote.before}»{quote.name}«{quote.after}" if quote.name else f"({quote.problem})"
        yield f"    {printable(sentence)}"
