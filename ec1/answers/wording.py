"""What a model wrote, as text: its thought between `<think>` and `</think>`, whatever its chat template writes there.

Belongs here: the marks of a template, which are found by asking it. Does not: writing answers (`answering.py`), and
what is made of a thought.

Many templates write such marks as special tokens, which no text shows: without them a thought runs into its answer, and
gpt-oss's `final`, the name of a channel, into every one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ec1.corpus.rendering import PROBE, rejecting, render
from ec1.errors import RejectedError

_THOUGHT, _ANSWER = PROBE.format("t"), PROBE.format("a")
_Marks = tuple[int, ...]


@dataclass(frozen=True)
class Wording:
    """The tokens that a tokenizer's chat template has before an answer, before a thought, and between the two; none
    where it has none, or writes them as plain text."""

    tokenizer: Any
    answer: _Marks = ()
    thought: _Marks = ()
    between: _Marks = ()

    @classmethod
    def of(cls, tokenizer: Any) -> "Wording":
        """As its template says; of one that shows no thoughts, or of a tokenizer without a template, without them."""
        question = {"role": "user", "content": "?"}
        said = {"role": "assistant", "content": _ANSWER}
        try:
            with rejecting():
                asked = render(tokenizer, [question], ask=True)
                plain = render(tokenizer, [question, said])
                whole = render(tokenizer, [question, said | {"reasoning_content": _THOUGHT}])
        except RejectedError:
            return cls(tokenizer)

        added = set(tokenizer.get_added_vocab().values())

        def marks(text: str) -> _Marks:
            # A space behind them may be one token with what follows.
            tokens = tuple(tokenizer.encode(text.rstrip(), add_special_tokens=False))
            return tokens if added & set(tokens) else ()

        def opening(before: str, found: str) -> _Marks:
            return marks(before.removeprefix(asked)) if found and before.startswith(asked) else ()

        before, found, _ = plain.partition(_ANSWER)
        answer = opening(before, found)
        before, found, rest = whole.partition(_THOUGHT)
        between, answers, _ = rest.partition(_ANSWER)
        if not answers:
            return cls(tokenizer, answer)
        return cls(tokenizer, answer, opening(before, found), marks(between.lstrip()))

    def text(self, tokens: Sequence[int]) -> str:
        """An answer as text, or what there is of one."""
        written, size = tuple(tokens), len(self.between)
        ends = [at for at in range(len(written)) if size and written[at : at + size] == self.between]
        if ends:
            thought, said = _without(self.thought, written[: ends[-1]]), written[ends[-1] + size :]
            return f"<think>{self._decoded(thought)}</think>{self._decoded(said)}".strip()
        if (thought := _without(self.thought, written)) != written:
            return f"<think>{self._decoded(thought)}".strip()
        return self._decoded(_without(self.answer, written)).strip()

    def _decoded(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))


def _without(marks: _Marks, tokens: _Marks) -> _Marks:
    return tokens[len(marks) :] if tokens[: len(marks)] == marks else tokens
