from itertools import permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from specdec_core import Sampling
from specdec_core.sampling import draw_children, draw_tokens, key_index, rank_keys, top_k, without_replacement


def test_greedy_takes_the_lowest_id_of_a_tie(rng):
    logits = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    assert Sampling().draw(logits, rng).tolist() == [1, 0]
    assert Sampling(temperature=1e-4).probs(logits).tolist() == [[0, 1, 0], [1, 0, 0]]


def test_top_p_keeps_the_crossing_token_and_breaks_ties_by_id():
    logits = torch.tensor([0.4, 0.3, 0.15, 0.15]).log()
    assert Sampling(1.0, top_p=0.69).probs(logits).tolist() == pytest.approx([4 / 7, 3 / 7, 0, 0])
    assert Sampling(1.0, top_p=0.71).probs(logits).tolist() == pytest.approx([8 / 17, 6 / 17, 3 / 17, 0], abs=1e-6)
    assert Sampling(1.0, top_p=1e-6).probs(logits).tolist() == [1, 0, 0, 0]
    assert Sampling(1.0).probs(logits).tolist() == pytest.approx([0.4, 0.3, 0.15, 0.15])


def test_top_k_and_temperature():
    logits = torch.tensor([1.0, 2.0, 2.0, 0.0])
    probs = Sampling(0.5, top_k=2).probs(logits)
    assert probs.tolist() == pytest.approx([0, 0.5, 0.5, 0])
    assert Sampling(0.5).probs(logits)[1] / Sampling(0.5).probs(logits)[0] == pytest.approx(torch.e**2)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_that_are_not_finite_give_no_token(rng, bad, temperature):
    logits = torch.tensor([[0.0, bad, 1.0], [-torch.inf] * 3, [0.0, -torch.inf, -torch.inf]])
    assert Sampling(temperature).draw(logits, rng).tolist() == [-1, -1, 0]


@pytest.mark.parametrize(
    "settings", [{"temperature": -1}, {"temperature": float("nan")}, {"top_p": 0}, {"top_p": 1.1}, {"top_k": 0}]
)
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(ValueError, match=r"must"):
        Sampling(**settings)


@pytest.mark.parametrize("k", [1, 4])
def test_draws_follow_the_distribution_and_never_give_zeros(rng, k):
    p = torch.tensor([0.0, 0.5, 0.0, 0.3, 0.2, 0.0], dtype=torch.float64)
    draws = draw_tokens(p.float().expand(100_000 // k, 6), k, rng).flatten().bincount(minlength=6)
    assert draws[[0, 2, 5]].tolist() == [0, 0, 0]
    assert stats.chisquare(draws[[1, 3, 4]], 100_000 * p[[1, 3, 4]]).pvalue > 1e-3


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-53])
def test_the_ends_of_the_uniform_give_tokens_of_the_support(monkeypatch, rng, uniform):
    p = torch.rand(2000, 50, generator=rng)
    p[:, [0, 1, 48, 49]] = 0
    monkeypatch.setattr(torch, "rand", lambda shape, **kwargs: torch.full(shape, uniform, dtype=torch.float64))
    drawn = draw_tokens(p / p.sum(-1, keepdim=True), 1, rng)[:, 0]
    assert (p.gather(-1, drawn[:, None]) > 0).all()


@pytest.mark.parametrize("draws", ["topk", "iid", "without_replacement"])
def test_children_of_a_distribution_that_is_not_finite_are_tokens_of_the_vocabulary(rng, draws):
    """What is wrong is reported where it is judged; an index behind the vocabulary would kill a CUDA context first."""
    _, ids = draw_children(torch.full((2, 5), float("nan")), 3, draws, rng)
    assert ((ids >= 0) & (ids < 5)).all()


def test_a_word_that_is_no_way_of_drawing_is_refused(rng):
    with pytest.raises(ValueError, match="draws must be one of topk, iid, without_replacement, greedy_one, not 'idd'"):
        draw_children(torch.full((2, 5), 0.2), 3, "idd", rng)


def test_without_replacement_has_the_distribution_of_successive_draws(rng):
    q = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    drawn = without_replacement(q.float().expand(100_000, 4), 2, rng)
    orders = list(permutations(range(4), 2))
    expected = torch.tensor([q[a] * q[b] / (1 - q[a]) for a, b in orders])
    counts = torch.stack([((drawn == torch.tensor(order)).all(-1)).sum() for order in orders])
    assert counts.sum() == 100_000
    assert stats.chisquare(counts, 100_000 * expected / expected.sum()).pvalue > 1e-3


def test_without_replacement_falls_back_to_uniform_when_the_support_is_exhausted(rng):
    q = torch.tensor([0.0, 1.0, 0.0, 0.0]).expand(30_000, 4)
    drawn = without_replacement(q, 3, rng)
    assert (drawn[:, 0] == 1).all()
    assert (drawn.sort(-1).values.diff(dim=-1) > 0).all()
    assert stats.chisquare(drawn[:, 1].bincount(minlength=4)[[0, 2, 3]]).pvalue > 1e-3


def test_iid_children_repeat_tokens(rng):
    probs, ids = draw_children(torch.tensor([[0.5, 0.5, 0.0]]), 40, "iid", rng)
    assert set(ids.flatten().tolist()) == {0, 1}
    assert (probs == 0.5).all()


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=20), st.integers(1, 20))
def test_top_k_is_a_stable_descending_sort(values, k):
    k = min(k, len(values))
    best, ids = top_k(torch.tensor([values]), k)
    assert ids[0].tolist() == sorted(range(len(values)), key=lambda i: (-values[i], i))[:k]
    assert best[0].tolist() == [values[i] for i in ids[0].tolist()]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.integers(0, 1000))
def test_rank_keys_are_distinct_and_order_by_value_then_index(values, first):
    keys = rank_keys(torch.tensor(values, dtype=torch.float64), first)
    assert len(set(keys.tolist())) == len(values)
    assert key_index(keys).tolist() == list(range(first, first + len(values)))
    for i, a in enumerate(values):
        for j, b in enumerate(values):
            if a > b * (1 + 2**-30) + 1e-300 or (a == b and i < j):  # subnormal values have fewer bits
                assert keys[i] < keys[j]


@pytest.mark.parametrize("spread", [0.0, 0.5, 4.0])
def test_the_nucleus_of_a_large_vocabulary_is_that_of_a_full_sort(spread, rng):
    """Flat distributions reach beyond the most probable 1,024 tokens, sharp ones do not."""
    logits = (spread * torch.randn(3, 3000, generator=rng)).round(decimals=1)  # with ties
    kept = Sampling(1.0, top_p=0.9).probs(logits) > 0
    for row, chosen in zip(logits.softmax(-1).double(), kept, strict=True):
        order = sorted(range(3000), key=lambda token: (-float(row[token]), token))
        before, expected = 0.0, set()
        for token in order:
            if before >= 0.9:
                break
            expected.add(token)
            before += float(row[token])
        assert set(chosen.nonzero().flatten().tolist()) == expected


def test_greedy_children_are_a_draw_from_the_others_and_the_best(rng):
    """Ties of the best go to the lower id; a single child is a draw from q."""
    q = torch.tensor([0.2, 0.3, 0.3, 0.15, 0.05]).expand(20_000, -1)
    probs, ids = draw_children(q, 3, "greedy_one", rng)
    assert (ids[:, 1:] == torch.tensor([1, 2])).all()
    assert torch.equal(probs, q.gather(-1, ids))
    counts = ids[:, 0].bincount(minlength=5)
    assert counts[[1, 2]].sum() == 0
    expected = torch.tensor([0.2, 0.15, 0.05]) / 0.4 * 20_000
    assert stats.chisquare(counts[[0, 3, 4]], expected.double() * 20_000 / expected.double().sum()).pvalue > 1e-3
    alone = draw_children(q, 1, "greedy_one", rng)[1][:, 0].bincount(minlength=5)
    assert stats.chisquare(alone, q[0].double() * 20_000 / q[0].double().sum()).pvalue > 1e-3


@pytest.mark.parametrize("q", [[0.0, 0.0, 1.0, 0.0], [0.5, 0.0, 0.5, 0.0]])
def test_where_q_has_no_others_greedy_children_are_drawn_from_all(rng, q):
    """Of the best tokens those without probability are the first ids; the draw is uniform over what is left."""
    best = sorted(range(4), key=lambda token: (-q[token], token))[:2]
    ids = draw_children(torch.tensor(q).expand(2000, -1), 3, "greedy_one", rng)[1]
    assert (ids[:, 1:] == torch.tensor(best)).all()
    counts = ids[:, 0].bincount(minlength=4)
    assert counts[best].sum() == 0
    assert stats.chisquare(counts[[token for token in range(4) if token not in best]]).pvalue > 1e-3
    whole = draw_children(torch.tensor(q).expand(5, -1), 4, "greedy_one", rng)[1]
    assert (whole.sort(-1).values == torch.arange(4)).all()


def test_greedy_children_of_fewer_ranks_are_drawn_from_more(rng):
    """Rows that use 1, 2 or 3 of the children leave out none, one or two of the best tokens."""
    q = torch.tensor([0.4, 0.3, 0.2, 0.1]).expand(3, -1)
    counts, seen = torch.tensor([1, 2, 3]), [set() for _ in range(3)]
    for _ in range(200):
        ids = draw_children(q, 3, "greedy_one", rng, counts)[1]
        assert [row[1:count] for row, count in zip(ids.tolist(), counts.tolist(), strict=True)] == [[], [0], [0, 1]]
        for found, token in zip(seen, ids[:, 0].tolist(), strict=True):
            found.add(token)
    assert seen == [{0, 1, 2, 3}, {1, 2, 3}, {2, 3}]
