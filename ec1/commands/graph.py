"""`ec1 graph`: the published graph for people and programs. Reads only, and never the live file."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ec1.commands.shell import Options, out, print_json, printable

if TYPE_CHECKING:
    from ec1.graph.reader import GraphReader

graph_app = typer.Typer(help="The published graph: what it holds, and the source of each fact.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]


def _reader(context: typer.Context) -> "GraphReader":
    from ec1.graph.reader import GraphReader

    options: Options = context.obj
    return GraphReader(options.home.published_graph, buffer_pool_mib=options.deployment().graph.buffer_pool_mib)


@graph_app.command()
def stats(context: typer.Context, as_json: AsJson = False) -> None:
    """Count documents, entities and mentions."""
    with _reader(context) as reader:
        found = reader.stats()
    if as_json:
        print_json(asdict(found))
        return
    states = ", ".join(f"{count} {status}" for status, count in found.statuses.items())
    out.print(f"  {'documents':<12} {found.documents} ({states})", markup=False)
    out.print(f"  {'entities':<12} {found.total_entities}")
    for entity_class, count in found.entities.items():
        mentions = found.mentions_by_class.get(entity_class, 0)
        out.print(f"    {entity_class:<10} {count}, mentioned {mentions} times", markup=False)
    out.print(f"  {'mentions':<12} {found.mentions}")


@graph_app.command()
def query(
    context: typer.Context,
    cypher: Annotated[str, typer.Argument(help="such as 'MATCH (e:Entity) RETURN e.name LIMIT 5'")],
    as_json: AsJson = False,
) -> None:
    """Run a Cypher query that only reads; prints tab-separated columns."""
    with _reader(context) as reader:
        rows = reader.query(cypher)
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
            out.print(path, markup=False)


@graph_app.command()
def show(
    context: typer.Context,
    entity: Annotated[str, typer.Argument(help="a name, or a key such as 'Person:maria alvarez'")],
    limit: Annotated[int, typer.Option(min=0, help="mentions to show of each entity; 0: all")] = 50,
    as_json: AsJson = False,
) -> None:
    """Show an entity and the sentences that mention it, each with its document and how it was extracted."""
    # Imported here: parsing documents loads libraries that the other commands do without.
    from ec1.graph.quotes import Quotes

    options: Options = context.obj
    deployment = options.deployment()
    quotes = Quotes(deployment.documents_root(options.home), deployment.documents.max_bytes)
    records: list[dict[str, Any]] = []
    with _reader(context) as reader:
        for found, mentions in reader.show(entity):
            shown = mentions[:limit] if limit else mentions
            evidence = [{**asdict(mention), "quote": asdict(quotes.of(mention))} for mention in shown]
            cluster, links = reader.cluster_of(found.key)
            records.append(
                {
                    **asdict(found),
                    "evidence": evidence,
                    "relations": [
                        {**asdict(relation), "quote": asdict(quotes.of(relation))}
                        for relation in reader.relations_of(found.key)
                    ],
                    "cluster": asdict(cluster) if cluster else None,
                    "links": [asdict(link) for link in links],
                }
            )
    if as_json:
        print_json(records)
        return
    for record in records:
        _print_entity(record)


@graph_app.command()
def schema(context: typer.Context, as_json: AsJson = False) -> None:
    """Show the graph's tables, their columns and what they mean."""
    from ec1.graph.schema_page import schema_of

    with _reader(context) as reader:
        tables = schema_of(reader)
    if as_json:
        print_json(tables)
        return
    for table in tables:
        out.print(f"{table['table']} ({table['kind']}): {table['meaning']}", markup=False)
        columns = ", ".join(f"{name} {kind}" for name, kind in table["columns"].items())
        out.print(f"    {columns or '(no columns)'}", markup=False)


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
        found = reader.entities(limit, entity_class, text)
    if as_json:
        print_json([asdict(each) for each in found])
        return
    for each in found:
        line = f"{printable(each.name)}  {each.entity_class}, {each.mentions} mentions in {each.documents} documents"
        out.print(f"{line}  [{printable(each.key)}]", markup=False)


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
        (found, _), *_ = reader.show(entity)
        near = around.neighbours(reader, found.key, limit=limit)
        if graphml or html:
            graph = around.neighbourhood(reader, found.key, depth=depth, limit=limit)
            if graphml:
                around.write_graphml(graph, graphml.expanduser())
            if html:
                around.write_html(graph, html.expanduser())
    if as_json:
        print_json(around.as_rows(near))
        return
    for each in near:
        often = f" in {each.documents} documents" if each.documents else ""
        out.print(f"  {each.how}{often}: {printable(each.name)}  [{printable(each.key)}]", markup=False)


@graph_app.command()
def diff(
    context: typer.Context,
    night: Annotated[str, typer.Argument(help="YYYY-MM-DD")],
    as_json: AsJson = False,
) -> None:
    """Show what a night changed, from the Parquet exports of that night and of the one before."""
    from ec1.graph.differences import difference

    options: Options = context.obj
    found = difference(options.home.graph_exports, night)
    if as_json:
        print_json(asdict(found))
        return
    out.print(f"{found.night} against {found.since}: mentions {found.mentions_before} -> {found.mentions_after}")
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
            out.print(f"    {printable(line)}", markup=False)


@graph_app.command()
def mcp(context: typer.Context) -> None:
    """Serve the published graph to an assistant over the Model Context Protocol, on standard input and output."""
    from ec1.graph.mcp_server import graph_server

    options: Options = context.obj
    pool = options.deployment().graph.buffer_pool_mib
    graph_server(options.home.published_graph, buffer_pool_mib=pool).run("stdio")


@graph_app.command()
def review(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, help="pairs to show, the likeliest first")] = 50,
    as_json: AsJson = False,
) -> None:
    """List the pairs of entities that may be one; decide in the file that `graph.overrides` names."""
    from ec1.graph.resolution import Band

    with _reader(context) as reader:
        resolution = reader.resolution()
    pairs = [asdict(link) for link in resolution.band(Band.REVIEW)]
    if as_json:
        print_json(pairs[:limit])
        return
    out.print(f"{len(resolution.clusters)} clusters; {len(pairs)} pairs for review")
    for link in pairs[:limit]:
        _print_link(f"{printable(link['one'])} and", printable(link["other"]), link)


@graph_app.command()
def decide(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, help="pairs to ask about, those that would change most first")] = 20,
    sentences: Annotated[int, typer.Option(min=0, help="sentences to show of each side")] = 3,
) -> None:
    """Ask about the pairs that may be one, each with its sentences, and write the answers to `graph.overrides`.

    The next night follows them.
    """
    from ec1.errors import InputError
    from ec1.graph.quotes import Quotes
    from ec1.graph.review import pairs_to_decide, write_decision

    options: Options = context.obj
    deployment = options.deployment()
    path = deployment.graph.overrides
    if path is None:
        raise InputError(
            f"deployment {deployment.name!r} names no file for decisions: set graph.overrides, such as "
            "configs/overrides.yaml"
        )
    quotes = Quotes(deployment.documents_root(options.home), deployment.documents.max_bytes)
    with _reader(context) as reader:
        pairs = pairs_to_decide(reader, path)
        out.print(f"{len(pairs)} pairs to decide; answers go to {path}", markup=False)
        for number, pair in enumerate(pairs[:limit], 1):
            out.print(f"\n{number}. {pair.weight} mentions would change hands", markup=False)
            for side in (pair.one, pair.other):
                out.print(f"  {printable(side.name)}  [{printable(side.key)}], {side.mentions} mentions", markup=False)
                ((_, mentions),) = reader.show(side.key)
                for mention in mentions[:sentences]:
                    _print_evidence({**asdict(mention), "quote": asdict(quotes.of(mention))})
            _print_link("why:", "", asdict(pair.link))
            answer = typer.prompt("one and the same? [y]es, [n]o, [s]kip, [q]uit", default="s").strip().lower()[:1]
            if answer == "q":
                break
            if answer in ("y", "n"):
                reason = typer.prompt("how is that known?")
                write_decision(path, pair.one.key, pair.other.key, same=answer == "y", reason=reason)


def _print_link(before: str, after: str, link: dict[str, Any]) -> None:
    but = f"; {link['veto']}" if link["veto"] else ""
    why = printable(f"{link['reasons']}{but}")
    out.print(f"  {before} {after} ({link['score']:.1f} bits: {why})", markup=False)


def _print_entity(record: dict[str, Any]) -> None:
    out.print(
        f"{printable(record['name'])}  {record['entity_class']}, {record['mentions']} mentions in "
        f"{record['documents']} documents, confidence up to {record['confidence']:.2f}  [{printable(record['key'])}]",
        markup=False,
    )
    if cluster := record["cluster"]:
        others = ", ".join(member for member in cluster["members"] if member != record["key"])
        out.print(f"  one with {printable(others)}, as {printable(cluster['name'])}", markup=False)
    for link in record["links"]:
        other = link["other"] if link["one"] == record["key"] else link["one"]
        _print_link(link["band"], printable(other), link)
    for relation in record["relations"]:
        stated = f"{relation['subject']} {relation['relation']} {relation['object']}"
        out.print(f"\n  {printable(stated)}", markup=False)
        _print_evidence(relation)
    for mention in record["evidence"]:
        out.print()
        _print_evidence(mention)
    if more := record["mentions"] - len(record["evidence"]):
        out.print(f"\n  and {more} more; --limit 0 shows all")
    out.print()


def _print_evidence(record: dict[str, Any]) -> None:
    """Where a mention or a relation stands, how it was found, and the sentence with it marked."""
    quote = record["quote"]
    sentence = f"{quote['before']}»{quote['name']}«{quote['after']}" if quote["name"] else f"({quote['problem']})"
    out.print(
        f"  {printable(record['path'])}  {record['document_id']}, night {record['night']}, characters "
        f"{record['start']} to {record['end']}, confidence {record['confidence']:.2f}, {record['model']}, "
        f"extractor {record['fingerprint'][:12]}",
        markup=False,
    )
    out.print(f"    {printable(sentence)}", markup=False)
