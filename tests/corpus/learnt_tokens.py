"""What of a rendered conversation is learnt, as text."""

from itertools import groupby
from typing import Any

from ec1.corpus.rendering import Rendered, encode


def learnt(tokenizer: Any, found: Rendered) -> list[str]:
    """The stretches of the text whose tokens count."""
    [item] = encode(tokenizer, [found])
    tokens = zip(item.input_ids, item.mask, strict=True)
    stretches = [[token for token, _ in group] for counts, group in groupby(tokens, lambda each: each[1]) if counts]
    return [tokenizer.decode(stretch) for stretch in stretches]
