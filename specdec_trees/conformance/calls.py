"""How a verification function is called, and what text it wrote: one tree at a time."""

from collections.abc import Callable, Iterator, Sequence
from operator import index
from typing import Any, Protocol

import numpy as np
import torch

from specdec_trees.conformance.cases import Drafted, Text

ARRAYS = ("torch", "numpy")
RETURNS = ("nodes", "tokens")


class NonsenseError(ValueError):
    """A function that cannot be called, raises, or returns what is no path of the tree and a token."""


class Calls(Protocol):
    """A verification function, ready to be called."""

    def texts(self, drafted: Sequence[Drafted]) -> Iterator[Text]:
        """What it makes of each tree in turn: the accepted tokens and the next one."""


class Trees:
    """`verify(tokens, parents, draft_probs, target_probs, rng)`, for each tree alone."""

    def __init__(
        self, verify: Callable[..., Any], arrays: str, returns: str, seed: int, *, double: bool = False
    ) -> None:
        """`double`: torch tensors of float64, for laws that are compared exactly."""
        self._verify, self._arrays, self.returns = verify, arrays, returns
        self._dtype = torch.float64 if double else torch.float32
        self._rng = torch.Generator().manual_seed(seed) if arrays == "torch" else np.random.default_rng(seed)
        self._made: dict[Drafted, tuple[Any, ...]] = {}

    def texts(self, drafted: Sequence[Drafted]) -> Iterator[Text]:
        """The arrays of each call are its own: it may write to them."""
        for tree in drafted:
            yield text_of(tree, self.called(tree, self._rng), self.returns)

    def called(self, tree: Drafted, rng: Any) -> Any:
        """What the function returned. NonsenseError where it raised."""
        if tree not in self._made:
            self._made[tree] = arrays_of(tree, self._arrays, self._dtype)
        made = self._made[tree]
        own = [array.clone() for array in made] if self._arrays == "torch" else [array.copy() for array in made]
        try:
            return self._verify(*own, rng)
        except NonsenseError:
            raise
        except (Exception, SystemExit) as error:  # whatever it is: the function is not ours
            raise NonsenseError(raised(error, f"given {self._arrays} arrays of {described(tree)}")) from error


def arrays_of(tree: Drafted, arrays: str, dtype: torch.dtype) -> tuple[Any, ...]:
    """Tokens, parents and a row of q and of p for each node; numpy has float64."""
    rows = [[law[text] for text in tree.texts] for law in (tree.model.q, tree.model.p)]
    if arrays == "numpy":
        return np.array(tree.tokens), np.array(tree.parents), *(np.array(probs) for probs in rows)
    return torch.tensor(tree.tokens), torch.tensor(tree.parents), *(torch.tensor(probs, dtype=dtype) for probs in rows)


def text_of(tree: Drafted, returned: Any, returns: str) -> Text:
    """The accepted tokens and the next one. NonsenseError where they are no path of the tree and no token."""
    try:
        accepted, token = returned
        path, following = [index(one) for one in listed(accepted)], index(alone(listed(token)))
    except (TypeError, ValueError) as error:
        raise NonsenseError(f"it must return (accepted {returns}, next token), not {returned!r}") from error
    if not 0 <= following < tree.model.vocab:
        raise NonsenseError(f"its next token {following} is none of the vocabulary's {tree.model.vocab}")
    if returns == "tokens":
        if tuple(path) not in tree.texts:
            raise NonsenseError(f"its tokens {path} are no path of {described(tree)}")
        return (*path, following)
    above = 0
    for node in path[1:] if path[:1] == [0] else path:
        if not 0 < node < len(tree.parents) or tree.parents[node] != above:
            raise NonsenseError(f"its nodes {path} are no path from the root of {described(tree)}")
        above = node
    return (*tree.texts[above], following)


def listed(value: Any) -> Any:
    """Plain numbers of an array, or what was there."""
    return value.tolist() if hasattr(value, "tolist") else value


def alone(value: Any) -> Any:
    """The only element of a list, as `torch.multinomial` gives a token, or what was there."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def described(tree: Drafted) -> str:
    """Tokens and parents."""
    return f"tokens {tree.tokens}, parents {[*tree.parents]}"


def raised(error: BaseException, given: str) -> str:
    """What to say of an exception, in one line."""
    words = " ".join(str(error).split())
    return f"it raised {type(error).__name__}{': ' * bool(words)}{words[:300]} ({given})"
