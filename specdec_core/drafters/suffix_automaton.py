"""The suffix automaton of a growing text: how often each of its substrings occurs, and what follows there."""

from collections.abc import Iterator


class SuffixAutomaton:
    """All substrings of a text that grows token by token, with the counts of those up to `longest` tokens.

    A state stands for the substrings that end at the same places (Blumer et al., 1985, "The smallest automaton
    recognizing the subwords of a text"). They are suffixes of one another, and no length between them is missing. Its
    link is the state of the next shorter suffix. State 0 is the empty string.

    A token costs O(1) amortised for states and transitions. It is counted in the states of the new text's suffixes, of
    which `longest` bounds the number, however long the text is.
    """

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self.size = 0
        """Tokens of the text."""
        self.children: list[dict[int, int]] = [{}]
        """Of each state, by token, the state of its strings with that token behind them."""
        self.count, self.latest = [0], [0]
        """Of each state, how often its strings occur, and where they ended last; past `longest` tokens neither."""
        self._length, self._link = [0], [-1]
        self._text = 0
        self._suffix, self._suffix_length = 0, 0

    def append(self, token: int) -> None:
        """Read one more token of the text."""
        self.size += 1
        self._text = self._extended(token)
        self._suffix_length = min(self._suffix_length + 1, self.longest)
        # what was split off the last suffix's state has the same children
        self._suffix = self._of_length(self.children[self._suffix][token], self._suffix_length)
        for state, _ in self.suffixes():
            self.count[state] += 1
            self.latest[state] = self.size

    def suffixes(self) -> Iterator[tuple[int, int]]:
        """The states of the text's suffixes, of `longest` tokens first, and the length of the longest in each."""
        state, length = self._suffix, self._suffix_length
        while state:
            yield state, length
            state = self._link[state]
            length = self._length[state]

    def shortest(self, state: int) -> int:
        """The length of a state's shortest string; of any but the empty one's."""
        return self._length[self._link[state]] + 1

    def _of_length(self, state: int, length: int) -> int:
        """The state of a state's strings cut to a length; one that was split off may have them now."""
        while self.shortest(state) > length:
            state = self._link[state]
        return state

    def _extended(self, token: int) -> int:
        """The state of the text with one more token."""
        text, state = self._added({}, length=self._length[self._text] + 1, link=0), self._text
        while state >= 0 and token not in self.children[state]:
            self.children[state][token] = text
            state = self._link[state]
        if state >= 0:
            self._link[text] = self._split(state, token)
        return text

    def _split(self, state: int, token: int) -> int:
        """The state of a state's strings with a token behind them, without longer ones that occur elsewhere too."""
        whole = self.children[state][token]
        if self._length[whole] == self._length[state] + 1:
            return whole
        part = self._added(dict(self.children[whole]), length=self._length[state] + 1, link=self._link[whole])
        self.count[part], self.latest[part], self._link[whole] = self.count[whole], self.latest[whole], part
        while state >= 0 and self.children[state].get(token) == whole:
            self.children[state][token] = part
            state = self._link[state]
        return part

    def _added(self, children: dict[int, int], *, length: int, link: int) -> int:
        self.children.append(children)
        self.count.append(0)
        self.latest.append(0)
        self._length.append(length)
        self._link.append(link)
        return len(self.children) - 1
