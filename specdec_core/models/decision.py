"""Decision models: how probably the target accepts what the draft has just drawn (Lu et al., 2024, section 3.3)."""

from collections import OrderedDict
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from specdec_core.errors import PairError
from specdec_core.models.causal_lm import ModelOutput

KINDS = ("hidden", "topk")
TOP = 10
"""How many of the draft's largest probabilities the `topk` model reads, beside the entropy."""
_WIDE = 2048
"""The hidden size of a draft of 1.1B, whose layers are the paper's."""


class DecisionModel(nn.Module):
    """A small MLP that scores the tokens drawn from one output of the draft; all of them get the same score.

    `hidden` reads the draft's last hidden state, after the final norm: three layers, 768-512-256-1 for a 68M draft,
    2048-1024-512-1 for 1.1B, two thirds and one third of another size. `topk` reads the 10 largest probabilities in
    descending order and the entropy in nats: two layers, 11-44-1. ReLU between, a sigmoid at the end.
    """

    def __init__(self, kind: str, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.kind = kind
        self.facts: dict[str, str] = {}
        """Where it comes from; kept in its file."""
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for number, (given, made) in enumerate(zip(sizes, (*sizes[1:], 1), strict=True)):
            if number:
                layers[f"relu{number}"] = nn.ReLU()
            layers[f"linear{number}"] = nn.Linear(given, made)
        self.layers = nn.Sequential(layers)
        self.sizes = sizes

    @staticmethod
    def of(kind: str, hidden_size: int | None = None) -> "DecisionModel":
        """A model with fresh weights; `hidden_size` is the draft's. ValueError for what is no kind."""
        if kind == "topk":
            return DecisionModel(kind, (TOP + 1, 44))
        if kind != "hidden" or hidden_size is None:
            raise ValueError(f"a decision model is of kind {' or '.join(KINDS)} (with a hidden size), not {kind!r}")
        if hidden_size == _WIDE:
            return DecisionModel(kind, (hidden_size, 1024, 512))
        return DecisionModel(kind, (hidden_size, 2 * hidden_size // 3, hidden_size // 3))

    @property
    def needs_hidden(self) -> bool:
        """Whether it reads the draft's hidden states."""
        return self.kind == "hidden"

    def features(self, drafted: ModelOutput) -> Float[Tensor, "rows given"]:
        """What it reads of the draft's output. PairError where that lacks hidden states or has others."""
        if not self.needs_hidden:
            return top_and_entropy(drafted.logits)
        if drafted.hidden is None:
            raise PairError(
                "a decision model of kind hidden reads the draft's hidden states, and this draft keeps none"
            )
        if drafted.hidden.shape[-1] != self.sizes[0]:
            raise PairError(
                f"the decision model reads hidden states of size {self.sizes[0]}, and this draft's have "
                f"{drafted.hidden.shape[-1]}; train one for this draft"
            )
        return drafted.hidden.float()

    def forward(self, features: Float[Tensor, "rows given"]) -> Float[Tensor, " rows"]:
        """Logits of the scores."""
        out: Tensor = self.layers(features)
        return out[..., 0]

    def scores(self, drafted: ModelOutput) -> Float[Tensor, " rows"]:
        """Estimated probability that the target accepts a token drawn at each row."""
        return self(self.features(drafted)).sigmoid()

    def save(self, path: Path) -> None:
        """Weights as safetensors, with kind, sizes and facts as metadata."""
        sizes = ",".join(map(str, self.sizes))
        weights = {name: tensor.contiguous() for name, tensor in self.state_dict().items()}
        save_file(weights, path, {**self.facts, "kind": self.kind, "sizes": sizes})

    @staticmethod
    def load(path: Path) -> "DecisionModel":
        """What `save` wrote. ValueError with a sentence for another file."""
        try:
            with safe_open(path, framework="pt") as file:
                facts = dict(file.metadata() or {})
                sizes, kind = tuple(map(int, facts.pop("sizes").split(","))), facts.pop("kind")
                if sizes != DecisionModel.of(kind, sizes[0]).sizes:
                    raise ValueError(f"{kind} with layers of {sizes}")
                model = DecisionModel(kind, sizes)
                model.load_state_dict({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
        except (SafetensorError, OSError, KeyError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"{path} is no decision model ({type(error).__name__}); train one for this pair"
            ) from error
        model.facts = facts
        return model.eval()


def top_and_entropy(logits: Float[Tensor, "rows vocab"]) -> Float[Tensor, "rows given"]:
    """The 10 largest probabilities, descending, and the entropy in nats, of the untempered distribution."""
    log_probs = logits.float().log_softmax(-1)
    probs = log_probs.exp()
    largest = probs.topk(min(TOP, probs.shape[-1]), dim=-1).values
    missing = largest.new_zeros(largest.shape[0], TOP - largest.shape[-1])
    entropy = -(probs * log_probs.clamp(min=torch.finfo(torch.float32).min)).sum(-1, keepdim=True)
    return torch.cat((largest, missing, entropy), -1)
