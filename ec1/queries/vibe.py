"""What a page asks of a role's vibe check: its prompts, and what each version answered, as a table.

Belongs here: the table, which cells are empty, and how one is filled. Does not: keeping an answer (`doors`), the files
(`ec1.adapters.vibe`).
"""

import asyncio
from dataclasses import dataclass

from ec1.adapters.vibe import BASE, VibeAnswer, VibeBook, VibePrompt, answered
from ec1.errors import ServiceError
from ec1.files import checked_name
from ec1.queries.desk import Desk
from ec1.queries.generation import models, whole_answer

__all__ = ["BASE", "GatewayAddress", "VibeTable", "ask", "book_of", "model_of", "unanswered", "vibe_table"]

MAX_TOKENS = 200
"""Of an answer. What is longer says little more at a glance."""


@dataclass(frozen=True)
class GatewayAddress:
    """Where `ec1 serve` answers, and the key that it asks for."""

    url: str
    api_key: str | None = None


@dataclass(frozen=True)
class VibeTable:
    """Prompts × versions. `columns` are `base` and then versions, the newest first; `answers` are by (prompt, column).
    `taken_out` are prompts of earlier answers that are no longer asked, by id. `usable`: versions that can be asked."""

    prompts: tuple[VibePrompt, ...]
    columns: tuple[str, ...]
    answers: dict[tuple[str, str], VibeAnswer]
    taken_out: dict[str, VibeAnswer]
    usable: tuple[str, ...]

    def missing(self, column: str) -> int:
        """How many prompts a version has not answered."""
        return sum((each.id, column) not in self.answers for each in self.prompts)


def book_of(desk: Desk, tenant: str, role: str) -> VibeBook:
    """The prompts and answers of a role. Raises InputError for what is not a name."""
    return VibeBook(desk.home.vibe_checks / checked_name(tenant, "tenant") / checked_name(role, "role"))


def vibe_table(desk: Desk, tenant: str, role: str, limit: int) -> VibeTable:
    """The base and the `limit` newest versions that are usable, or answered before they were withdrawn."""
    book = book_of(desk, tenant, role)
    prompts, records = book.prompts(), book.records()
    usable = _usable(desk, tenant, role)
    numbers = {int(name[1:]) for name in (*records, *usable) if name != BASE}
    columns = (BASE, *(f"v{number}" for number in sorted(numbers, reverse=True)[:limit]))
    answers = {(id, name): each for name, record in records.items() for id, each in record.answers.items()}
    asked = {each.id for each in prompts}
    taken_out = {id: each for (id, name), each in answers.items() if id not in asked and name in columns}
    return VibeTable(prompts, columns, answers, taken_out, usable)


def unanswered(desk: Desk) -> list[tuple[str, str, str]]:
    """(tenant, role, version) of each role that keeps a vibe check and whose newest version has not answered all of it:
    what a Studio with an engine does by itself."""
    found = []
    for tenant, role in desk.registry.roles():
        book = book_of(desk, tenant, role)
        prompts = {each.id for each in book.prompts()}
        if prompts and (usable := _usable(desk, tenant, role)):
            record = book.record(usable[0])
            if not prompts <= set(record.answers if record else ()):
                found.append((tenant, role, usable[0]))
    return found


def model_of(tenant: str, role: str, column: str, gateway: GatewayAddress) -> str:
    """The name under which the gateway serves a column. Raises ServiceError if it does not."""
    served = models(gateway.url, gateway.api_key)
    wanted = f"{tenant}/{role}@{column}"
    if column == BASE:
        return next(name for name in served if "@" not in name)
    if wanted not in served:
        raise ServiceError(f"the gateway does not serve {wanted}: it has {', '.join(served)[:300]}")
    return wanted


def ask(gateway: GatewayAddress, model: str, prompt: VibePrompt) -> VibeAnswer:
    """One answer, the likeliest. Raises ServiceError."""
    messages = [{"role": "user", "content": prompt.text}]
    if prompt.system:
        messages.insert(0, {"role": "system", "content": prompt.system})
    said = asyncio.run(whole_answer(gateway.url, gateway.api_key, model, messages, max_tokens=MAX_TOKENS))
    return answered(prompt, said.text, said.end, said.nats)


def _usable(desk: Desk, tenant: str, role: str) -> tuple[str, ...]:
    """Versions of a role that are not withdrawn, the newest first."""
    return tuple(f"v{number}" for number in sorted(desk.registry.usable(tenant, role), reverse=True))
