"""What goes wrong, each a sentence that says what to do."""


class SpecdecError(Exception):
    """Any refusal of this package."""


class PromptError(SpecdecError):
    """The prompt cannot be decoded as asked: empty, too long, or already ended."""


class PairError(SpecdecError):
    """Target, draft, drafter and verifier do not fit together."""


class NonFiniteLogitsError(SpecdecError):
    """A model returned NaN or infinite logits; no token is invented from them."""


class LoadError(SpecdecError):
    """A model cannot be loaded: missing, gated, offline, of another format, or too large."""
