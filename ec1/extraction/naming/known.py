"""Where names that the graph knows already stand in a text: an Aho-Corasick automaton over a published copy.

Belongs here: building it and asking it. Does not: what a found name is worth (`confidence`): it is a candidate like any
other, and the model decides.
"""

from collections.abc import Iterable

import ahocorasick

from ec1.extraction.folding import Folded, normalised

_SHORTEST = 3


class KnownNames:
    """An index of names; one pass over a text finds all of them, however many they are."""

    def __init__(self, names: Iterable[str]) -> None:
        self._automaton = ahocorasick.Automaton()
        for name in names:
            plain = normalised(name)
            if len(plain) >= _SHORTEST:
                self._automaton.add_word(plain, len(plain))
        if len(self._automaton):
            self._automaton.make_automaton()

    def __len__(self) -> int:
        return len(self._automaton)

    def in_text(self, text: str) -> list[tuple[int, int]]:
        """Spans `[start, end)` of `text`, as whole words, where a name stands that is written as one: with a capital or
        in a script without them."""
        if not len(self._automaton):
            return []
        folded = Folded.of(text)
        found = []
        for last, length in self._automaton.iter(folded.text):
            first = last - length + 1
            before, after = folded.text[first - 1 : first], folded.text[last + 1 : last + 2]
            start, end = folded.origin[first], folded.origin[last] + 1
            if not (before.isalnum() or after.isalnum()) and not text[start:end].islower():
                found.append((start, end))
        return found
