"""Decision models trained and judged (Lu et al., 2024, section 3.3).

The `hidden` model learns min(1, p/q) itself, the `topk` model whether a token was accepted, from as many accepted as
rejected ones.
"""

import hashlib
import logging
import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from specdec_core.models.decision import DecisionModel
from specdec_trees.calibrate.decision.examples import Examples
from specdec_trees.measure.cell import DecisionPlan
from specdec_trees.results.kept_rows import DecisionRow

log = logging.getLogger(__name__)
CHUNK = 8192
"""Examples that go to the device at once."""


def train(
    kind: str, training: Examples, validation: Examples, plan: DecisionPlan, *, seed: int, device: torch.device
) -> DecisionModel:
    """The model of the epoch with the least validation loss; on a CPU the same, bit for bit, for the same seed.

    Its facts say the losses (nats) and the numbers of examples. ValueError where no loss is finite.
    """
    rng = torch.Generator().manual_seed(seed)
    model = _fresh(kind, training, seed).to(device)
    fit, held = (_wanted(kind, examples, rng) for examples in (training, validation))
    optimiser = torch.optim.Adam(model.parameters(), lr=plan.rate)
    best, state = {"validation_loss": math.inf}, {}
    for epoch in range(1, plan.epochs + 1):
        order = fit[torch.randperm(len(fit), generator=rng)]
        loss = torch.zeros((), device=device)
        for given, wanted in _batches(kind, training, order, plan.batch, device):
            batch_loss = binary_cross_entropy_with_logits(model(given), wanted)
            optimiser.zero_grad()
            batch_loss.backward()
            optimiser.step()
            loss += batch_loss.detach() * len(wanted)
        found = validation_loss(model, kind, validation, held, device)
        if found < best["validation_loss"]:
            best = {"epoch": epoch, "training_loss": float(loss) / len(fit), "validation_loss": found}
            state = {name: weights.detach().cpu().clone() for name, weights in model.state_dict().items()}
    if not state:
        raise ValueError(
            f"the losses of the {kind} decision model are not finite; the draft's outputs cannot be learnt"
        )
    model.load_state_dict(state)
    counts = {"num_examples": len(fit), "num_validation_examples": len(held)}
    model.facts = {name: f"{value:.6g}" for name, value in best.items()} | {k: str(v) for k, v in counts.items()}
    return model.to("cpu").eval()


def _fresh(kind: str, training: Examples, seed: int) -> DecisionModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return DecisionModel.of(kind, training.features["hidden"].shape[1])


def _wanted(kind: str, examples: Examples, rng: Generator) -> Tensor:
    """Numbers of the examples that a kind learns from: all, or as many accepted as rejected ones."""
    if kind == "hidden":
        return torch.arange(len(examples))
    classes = [(examples.accepted == accepted).nonzero().flatten() for accepted in (True, False)]
    fewest = min(map(len, classes))
    if not fewest:
        log.warning("all of %d drafted tokens were accepted, or none: classes cannot be balanced", len(examples))
        return torch.arange(len(examples))
    return torch.cat([some[torch.randperm(len(some), generator=rng)[:fewest]] for some in classes])


def _labels(kind: str, examples: Examples) -> Float[Tensor, " examples"]:
    return examples.labels if kind == "hidden" else examples.accepted.float()


def _batches(
    kind: str, examples: Examples, order: Tensor, size: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Features and labels in this order, in batches of this size."""
    features, labels = examples.features[kind], _labels(kind, examples)
    for chunk in order.split(size * max(1, CHUNK // size)):
        given = features[chunk].to(device, torch.float32).split(size)
        yield from zip(given, labels[chunk].to(device).split(size), strict=True)


@torch.no_grad()
def validation_loss(model: DecisionModel, kind: str, examples: Examples, order: Tensor, device: torch.device) -> float:
    """Mean binary cross-entropy in nats over some of the examples."""
    losses = [
        binary_cross_entropy_with_logits(model(given), wanted, reduction="sum").cpu()
        for given, wanted in _batches(kind, examples, order, CHUNK, device)
    ]
    return float(sum(losses)) / len(order)


@torch.no_grad()
def scores(model: DecisionModel, examples: Examples) -> Float[Tensor, " examples"]:
    """What a model on the CPU says of every example, in (0, 1)."""
    features = examples.features[model.kind]
    return torch.cat([model(some.float()) for some in features.split(CHUNK)]).sigmoid()


def rows(model: DecisionModel, examples: Examples, run_id: str) -> list[DecisionRow]:
    """A row per validation example, for the table `decisions`; who and where from the model's facts."""
    facts = model.facts
    origin: dict[str, Any] = {name: facts.get(name, "") for name in ("pair", "dataset", "device_name")}
    origin |= {"temperature": float(facts["temperature"]), "num_prompts": int(facts["num_prompts"])}
    columns = scores(model, examples).tolist(), examples.labels.tolist(), examples.accepted.tolist()
    return [
        DecisionRow(
            run_id=run_id, kind=model.kind, prompt_id=prompt, label=label, accepted=accepted, score=score, **origin
        )
        for prompt, score, label, accepted in zip(examples.prompt_ids, *columns, strict=True)
    ]


def digest(model: DecisionModel) -> str:
    """12 hex digits of the sha256 of kind, sizes and weights; facts are no part of what a cell is."""
    found = hashlib.sha256(f"{model.kind} {model.sizes}".encode())
    for name, weights in sorted(model.state_dict().items()):
        found.update(name.encode() + weights.cpu().numpy().tobytes())
    return found.hexdigest()[:12]


def auc(scores: "pd.Series[float]", accepted: "pd.Series[bool]") -> float:
    """Probability that an accepted example scores above a rejected one, ties half; nan where one kind is missing."""
    above, count = scores.rank()[accepted].sum(), int(accepted.sum())
    pairs = count * (len(accepted) - count)
    return float((above - count * (count + 1) / 2) / pairs) if pairs else math.nan


def summary(models: dict[str, DecisionModel], found: dict[str, list[DecisionRow]]) -> str:
    """A line per kind: losses, and how well the scores of validation examples tell accepted from rejected ones.

    Accuracy is at a score of 0.5, beside the share of accepted examples.
    """
    table = pd.DataFrame([_line(model, pd.DataFrame(found[kind])) for kind, model in models.items()])
    return table.to_string(index=False)


def _line(model: DecisionModel, rows: pd.DataFrame) -> dict[str, str]:
    score, accepted, facts = rows["score"], rows["accepted"].astype(bool), model.facts
    return {
        "kind": model.kind,
        "prompts": f"{facts['num_prompts']}+{facts['num_validation_prompts']}",
        "examples": f"{facts['num_examples']}+{facts['num_validation_examples']}",
        "epoch": facts["epoch"],
        "training loss": f"{float(facts['training_loss']):.4f}",
        "validation loss": f"{float(facts['validation_loss']):.4f}",
        "accuracy": f"{((score > 0.5) == accepted).mean():.4f}",
        "accepted": f"{accepted.mean():.4f}",
        "AUC": f"{auc(score, accepted):.4f}",
    }
