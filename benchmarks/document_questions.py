"""Questions with answers from documents, written by the sample's own model: how many stay, and which (two minutes).

Of each of 60 paragraphs of the sample's documents the model writes up to three questions whose answers it copies from
the paragraph. Kept is what quotes the paragraph and does not stand in its own question; the model is then asked each
question with the paragraph, and agrees if it gives the same words. All that is kept is printed, so that a person can
say what is right (docs/decisions/no-questions-from-documents.md).
"""

import asyncio
import json
import random
import re
import tempfile
from pathlib import Path
from typing import Any

import httpx

from benchmarks._engine import embedded, model_of, serving
from ec1.home import CHECKOUT

PARAGRAPHS, AT_ONCE, MAX_WORDS = 60, 16, 8
EXAMPLE = (
    "Anna Berg rang from Lund on Monday. The new boiler costs 4,200 euros and arrives in May, as Petterson AB has none "
    "in stock."
)
ITEMS = [("Who rang from Lund?", "Anna Berg"), ("What does the new boiler cost?", "4,200 euros")]
WRITE = "You write questions about a text. Each answer is words of the text, copied exactly, and short."
ANSWER = "Answer the question with words of the text, copied exactly, as short as possible."
TEXT = {"type": "string", "maxLength": 160}
ITEM = {"type": "object", "properties": {"question": TEXT, "answer": TEXT}, "required": ["question", "answer"]}
SCHEMA = {
    "type": "object",
    "properties": {"items": {"type": "array", "minItems": 1, "maxItems": 3, "items": ITEM}},
    "required": ["items"],
}


def paragraphs() -> list[str]:
    """Some of the sample's, always the same."""
    files = sorted((CHECKOUT / "examples" / "documents").rglob("*.md"))
    every = [" ".join(block.split()) for path in files for block in re.split(r"\n\s*\n", path.read_text())]
    whole = [each for each in every if 150 < len(each) < 700 and not each.startswith(("#", "|", "-"))]
    random.Random(1).shuffle(whole)
    return whole[:PARAGRAPHS]


def shown(system: str, turns: list[tuple[str, str]], last: str) -> list[dict[str, str]]:
    said = [(role, text) for turn in turns for role, text in zip(("user", "assistant"), turn, strict=True)]
    return [{"role": role, "content": text} for role, text in [("system", system), *said, ("user", last)]]


async def measure(url: str, model: str) -> None:
    slots = asyncio.Semaphore(AT_ONCE)
    async with httpx.AsyncClient(base_url=url, timeout=300, trust_env=False) as http:

        async def ask(messages: list[dict[str, str]], tokens: int, **more: Any) -> str:
            body = {"model": model, "messages": messages, "temperature": 0, "max_tokens": tokens, **more}
            async with slots:
                answer = await http.post("/v1/chat/completions", json=body)
            return str(answer.raise_for_status().json()["choices"][0]["message"]["content"])

        async def written(text: str) -> list[tuple[str, str, str]]:
            example = json.dumps({"items": [{"question": question, "answer": answer} for question, answer in ITEMS]})
            grammar = {"type": "json_schema", "json_schema": {"name": "questions", "schema": SCHEMA}}
            said = await ask(shown(WRITE, [(EXAMPLE, example)], text), 220, response_format=grammar)
            try:
                return [(text, each["question"].strip(), each["answer"].strip()) for each in json.loads(said)["items"]]
            except ValueError:
                # Cut off.
                return []

        async def again(text: str, question: str) -> str:
            turns = [(f"{EXAMPLE}\n\n{known}", answer) for known, answer in ITEMS]
            return await ask(shown(ANSWER, turns, f"{text}\n\n{question}"), 40)

        found = [each for mine in await asyncio.gather(*map(written, paragraphs())) for each in mine]
        quoted = [
            (text, question, answer)
            for text, question, answer in dict.fromkeys(found)
            if answer and answer in text and len(answer.split()) <= MAX_WORDS and question.endswith("?")
            if answer.lower() not in question.lower()
        ]
        answers = await asyncio.gather(*(again(text, question) for text, question, _ in quoted))
    agrees = [
        one.strip(" .").lower() == answer.strip(" .").lower()
        for one, (_, _, answer) in zip(answers, quoted, strict=True)
    ]
    for same, (_, question, answer) in zip(agrees, quoted, strict=True):
        print(f"{'agrees ' if same else '       '} {question} | {answer}")
    print(json.dumps({"written": len(found), "quoted": len(quoted), "agree": sum(agrees)}))


def main() -> None:
    deployment, settings = embedded()
    with tempfile.TemporaryDirectory() as name:
        model = model_of(deployment, Path(name))
        with serving(deployment, settings.model_copy(update={"max_num_seqs": AT_ONCE}), model) as endpoint:
            asyncio.run(measure(endpoint.base_url, endpoint.model))


if __name__ == "__main__":
    main()
