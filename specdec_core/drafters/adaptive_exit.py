"""A sequence whose exit threshold follows the acceptance rate (Zhang et al., 2023, "Draft & Verify")."""

from dataclasses import replace

from jaxtyping import Int
from torch import Tensor

from specdec_core.drafters.base import Context
from specdec_core.drafters.token_graph import TokenGraph
from specdec_core.drafters.tree_drafter import AnyDraft
from specdec_core.models.causal_lm import ModelOutput
from specdec_core.tree import TokenTree, Verdict


class AdaptiveExit(TokenGraph):
    """A sequence of at most `max_steps` tokens, ended by the first of q below a threshold, which adapts step by step.

    Every prompt begins with the threshold `theta_prob` and the acceptance rate 0. After each step the rate becomes
    rate_decay * rate + (1 - rate_decay) * accepted / drafted. At most `target_rate`, it moves the threshold up by
    theta_step, else down: threshold = theta_decay * threshold + (1 - theta_decay) * (threshold +- theta_step). In the
    paper's letters these are gamma, AR, beta_1, alpha, epsilon and beta_2; the public code's AR begins with 0.

    A draft depends on steps that are past and on its own tokens, the last one kept: lossless as a sequence of
    `TokenGraph` is. ValueError for decays and rates outside of 0 to 1.
    """

    def __init__(
        self,
        *,
        draft: AnyDraft,
        theta_prob: float = 0.6,
        target_rate: float = 0.9,
        rate_decay: float = 0.5,
        theta_decay: float = 0.9,
        theta_step: float = 0.01,
        max_steps: int = 12,
        draws: str = "topk",
        draft_temperature: float = 1.0,
    ) -> None:
        super().__init__(
            draft=draft,
            k=1,
            tau=None,
            theta_prob=theta_prob,
            theta_sib=0.0,
            max_steps=max_steps,
            verify_cap=max_steps,
            unmerge_depth=None,
            draws=draws,
            draft_temperature=draft_temperature,
        )
        shares = {"target_rate": target_rate, "rate_decay": rate_decay, "theta_decay": theta_decay}
        for name, value in shares.items():
            if not 0 <= value <= 1:
                raise ValueError(f"AdaptiveExit's {name} is from 0 to 1, not {value}")
        self.first_threshold, self.target_rate, self.theta_step = theta_prob, target_rate, theta_step
        self.rate_decay, self.theta_decay = rate_decay, theta_decay
        self.threshold, self.rate, self._drafted = theta_prob, 0.0, 0

    def reset(self, prompt_ids: Int[Tensor, " prompt"], target: ModelOutput) -> None:
        """Begin a sequence with the first threshold."""
        self.threshold, self.rate = self.first_threshold, 0.0
        super().reset(prompt_ids, target)

    def grow(self, context: Context) -> TokenTree:
        """Draft with the threshold of this step; below 0 it ends no draft, as 0 does."""
        self.rules = replace(self.rules, theta_prob=max(self.threshold, 0.0))
        tree = super().grow(context)
        self._drafted = tree.num_drafted
        return tree

    def observe(self, verdict: Verdict, target: ModelOutput) -> None:
        """Keep what was accepted, and move the threshold."""
        super().observe(verdict, target)
        accepted = verdict.path.shape[0] - 1
        self.rate = self.rate_decay * self.rate + (1 - self.rate_decay) * accepted / self._drafted
        step = self.theta_step if self.rate <= self.target_rate else -self.theta_step
        self.threshold = self.theta_decay * self.threshold + (1 - self.theta_decay) * (self.threshold + step)
