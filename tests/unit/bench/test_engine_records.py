"""Records of engines: what each text counts is counted by hand."""

import json

import pytest

from specdec_trees.engines.reading import read
from specdec_trees.engines.records import EngineError, Record

VLLM = {"num_spec_steps": 43, "num_accepted_draft_tokens": 10, "num_draft_tokens": 129, "num_spec_tokens": 3}
VLLM |= {"mean_acceptance_length": 53 / 43, "draft_acceptance_rate": 10 / 129, "acceptance_histogram": [39, 1, 0, 3]}
RESPONSE = {"id": "one", "choices": [{"text": "n_drafted = 7"}], "metrics": {"speculative_decoding": VLLM}}
OF_43 = Record(129, 10, 43, (4, 3, 3))
"""39 steps accepted nothing, one accepted 1 token, three 3: at least one in 4, two in 3, three in 3."""
LOG = (
    "INFO SpecDecoding metrics: Mean acceptance length: 2.25, Accepted throughput: 1.00 tokens/s, Drafted throughput: "
    "2.00 tokens/s, Accepted: 5 tokens, Drafted: 8 tokens, Per-position acceptance rate: 0.750, 0.500, Avg Draft "
    "acceptance rate: 62.5%\n"
)
SCRAPED = """# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
vllm:spec_decode_num_drafts_total{engine="0"} 3.0
vllm:spec_decode_num_drafts_total{engine="1"} 1.0
vllm:spec_decode_num_drafts_created{engine="0"} 1.7e+09
vllm:spec_decode_num_draft_tokens_total{engine="0"} 8.0
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 5.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 3.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 2.0
"""
SLOT = "slot print_timing: id 0 | draft acceptance rate = 0.75000 (   12 accepted /    16 generated)\n"
LATER = (
    "draft acceptance = 0.62500 ( 5 accepted / 8 generated), mean acceptance length = 2.25, "
    "acceptance rate per position = (0.750, 0.500)\n"
)
END = "n_drafted = 16\nn_accept  = 12\naccept    = 75.000%\n"
OF_4 = Record(8, 5, 4, (3, 2))


def window(mean: str, accepted: int, drafted: int, rates: str) -> str:
    return f"Mean acceptance length: {mean}, Accepted: {accepted} tokens, Drafted: {drafted} tokens, " + (
        f"Per-position acceptance rate: {rates}, Avg Draft acceptance rate: 1.0%\n"
    )


def request(accepted: int, drafted: int, mean: str, task: int = 0) -> str:
    counts = f"({accepted:5d} accepted / {drafted:5d} generated)"
    return f"0.34 I slot print_timing: id  3 | task {task} | draft acceptance = 0.5 {counts}, mean len =  {mean}\n"


def by_position(rates: str, task: int = 0) -> str:
    return f"0.34 T slot print_timing: id 3 | task {task} |      acc per pos = ({rates})\n"


def statistics(kind: str, steps: int, drafted: int, accepted: int, rates: str, unjudged: int = 0) -> str:
    accepting = f", #mean acc len = 9.99, #acc rate/pos = ({rates})" if rates else ""
    counts = f"#gen drafts = {steps + unjudged:6d}, #acc drafts =     3, #gen tokens = {drafted:6d}"
    return (
        f"0.34 I spec common_specu: statistics {kind:>16s}: #calls(b,g,a) =    1    {steps + 7}     {steps}, {counts}, "
        f"#acc tokens = {accepted:5d}{accepting}, dur(b,g,a) = 0.004, 1011.730, 0.465 ms\n"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (json.dumps(RESPONSE), OF_43),
        (json.dumps(VLLM | {"acceptance_histogram": {"0": 39, "1": 1, "3": 3}, "engine": "vllm"}), OF_43),
        ("\n".join([json.dumps(VLLM)] * 2), Record(258, 20, 86, (8, 6, 6))),
        (json.dumps([VLLM, VLLM], indent=1), Record(258, 20, 86, (8, 6, 6))),
        (json.dumps(RESPONSE, indent=1) + "\n" + json.dumps(VLLM, indent=1), Record(258, 20, 86, (8, 6, 6))),
        (LOG, OF_4),
        (LOG * 2, Record(16, 10, 8, (6, 4))),
        ("Draft acceptance rate: 40.0%, Accepted: 120 tokens, Drafted: 300 tokens\n", Record(300, 120)),
        (SCRAPED, OF_4),
        (SCRAPED.replace("vllm:", "llamacpp:"), OF_4),
        (SCRAPED.replace(".0\n", ".0 1395066363000\n"), OF_4),
        (LATER, OF_4),
        (SLOT, Record(16, 12)),
        (SLOT + LATER, Record(24, 17)),  # of one line alone steps and positions are not known
        (json.dumps({"timings": {"predicted_n": 9, "draft_n": 16, "draft_n_accepted": 12}}), Record(16, 12)),
        (END, Record(16, 12)),
        (request(5, 8, "2.25"), Record(8, 5, 4)),
    ],
)
def test_records_of_engines(text, expected):
    assert read(text)[0] == expected


def chunk(name: str, drafted: int, accepted: int, **more) -> dict:
    return {"id": name, "choices": [], "timings": {"draft_n": drafted, "draft_n_accepted": accepted}} | more


def piece(drafted: int, accepted: int, stop: bool, **more) -> dict:
    return {"content": "a", "stop": stop, "timings": {"draft_n": drafted, "draft_n_accepted": accepted}} | more


STREAM = [chunk("x", 4, 3), chunk("x", 4, 3), chunk("x", 8, 5), chunk("x", 12, 7), chunk("x", 12, 7)]
OTHER = [chunk("y", 2, 0), chunk("y", 5, 1)]
NATIVE = [piece(4, 3, False), piece(8, 5, False), piece(12, 7, True)]
SLOTS = [piece(6, 1, False, id_slot=1), piece(3, 3, False, id_slot=0), piece(9, 4, True, id_slot=1)]


@pytest.mark.parametrize(
    ("chunks", "drafted", "accepted"),
    [
        (STREAM, 12, 7),
        (STREAM[:3], 8, 5),  # cut
        (STREAM + OTHER, 17, 8),
        ([*OTHER[:1], *STREAM, *OTHER[1:]], 17, 8),  # two at once
        (NATIVE, 12, 7),
        (NATIVE + NATIVE, 24, 14),
        (NATIVE + NATIVE[:2], 20, 12),
        (SLOTS, 12, 7),  # 9 and 4 of slot 1, 3 and 3 of slot 0, which is cut
        ([chunk("x", 6, 2, __verbose=piece(6, 2, True))], 6, 2),
        ([piece(6, 2, True), piece(6, 2, True)], 12, 4),
        ([{"id": "all", "answers": [piece(6, 2, True)["timings"], piece(5, 1, True)["timings"]]}], 11, 3),
    ],
)
def test_what_counts_from_a_streams_beginning_counts_once(chunks, drafted, accepted):
    """In whatever form: lines, a list, events."""
    events = "".join(f"data: {json.dumps(one)}\n\n" for one in [{"choices": [{"delta": {}}]}, *chunks])
    for text in ("\n".join(map(json.dumps, chunks)), json.dumps(chunks), events + "data: [DONE]\n"):
        assert read(text)[0] == Record(drafted, accepted)


def test_events_of_vllm_have_one_record():
    events = [{"id": "c", "metrics": None}, {"id": "c", "metrics": None}, RESPONSE | {"id": "c"}]
    assert read("".join(f"data: {json.dumps(one)}\n\n" for one in events))[0] == OF_43


@pytest.mark.parametrize("place", [{"metadata": {"benchmark_phase": "warmup"}}, {"metadata": {"phase_kind": "warmup"}}])
def test_aiperfs_warmup_does_not_count(place):
    warm = place | {"spec_decode_acceptance": VLLM}
    measured = {"metadata": {"benchmark_phase": "profiling"}, "spec_decode_acceptance": VLLM}
    assert read("\n".join(map(json.dumps, [warm, measured, warm])))[0] == OF_43
    with pytest.raises(EngineError):
        read(json.dumps(warm))


@pytest.mark.parametrize(
    ("counts", "depth", "reached"),
    [({"0": 5, "1": 3}, 3, (3, 0, 0)), ({"0": 8}, 2, (0, 0)), ({"2": 1, "4": 1}, None, (2, 2, 1, 1))],
)
def test_positions_where_nothing_was_accepted_are_known(counts, depth, reached):
    accepted, steps = sum(reached), sum(counts.values())
    record = {"num_draft_tokens": 24, "num_accepted_draft_tokens": accepted, "num_spec_steps": steps}
    found, _ = read(json.dumps(record | {"acceptance_histogram": counts, "num_spec_tokens": depth}))
    assert found == Record(24, accepted, steps, reached)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # 100 steps accepted 60, 40 and 20 tokens; 1900 one: 0.001 is 1 / 1900, and 1 / 2000 too
        (
            window("2.20", 120, 300, "0.600, 0.400, 0.200") + window("1.00", 1, 5700, "0.001, 0.000, 0.000"),
            Record(6000, 121, 2000, (61, 40, 20), (2000, 2100)),
        ),
        (window("2.28", 427, 999, "0.601, 0.450, 0.231"), Record(999, 427, 333, (200, 150, 77))),
        (window("1.00", 0, 12, "0.000, 0.000, 0.000"), Record(12, 0, 4, (0, 0, 0), (4, 12))),
        (window("2.25", 5, 8, "0.750, 0.500") + window("1.00", 0, 0, "0.000, 0.000"), OF_4),
        # 14 / 0.015 = 933.3, 14 / 0.005 = 2800
        (request(14, 4000, "1.01"), Record(4000, 14, 1400, None, (934, 2800))),
        # 1 / 0.005 = 200, and each step drafts a token
        (request(1, 900, "1.00"), Record(900, 1, 550, None, (200, 900))),
        (request(0, 3, "1.00") + request(60, 120, "2.50"), Record(123, 60, 42, None, (41, 43))),
        (request(60, 120, "2.50") + by_position("0.750, 0.500, 0.250"), Record(120, 60, 40, (30, 20, 10))),
        (
            request(60, 120, "2.50", 1)
            + request(15, 30, "2.50", 9)
            + by_position("0.800, 0.500, 0.200", 9)
            + by_position("0.750, 0.500, 0.250", 1),
            Record(150, 75, 50, (38, 25, 12)),
        ),
        # 20 steps with drafts of 3: nothing was accepted at the third position, which is not printed
        (request(20, 60, "2.00") + by_position("0.600, 0.400"), Record(60, 20, 20, (12, 8))),
        # 17 tokens a step: the other positions are not printed
        (request(34, 60, "18.00") + by_position("1.000, 1.000"), Record(60, 34, 2)),
        (request(90, 100, "4.50"), Record(100, 90)),  # 25 steps give 4.60, 26 give 4.46
    ],
)
def test_steps_of_printed_numbers_are_those_that_round_to_them(text, expected):
    assert read(text)[0] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (statistics("draft-mtp", 40, 120, 60, "0.750, 0.500, 0.250"), Record(120, 60, 40, (30, 20, 10))),
        (
            statistics("draft-mtp", 4, 12, 6, "0.750, 0.500, 0.250")
            + statistics("draft-mtp", 50, 150, 75, "0.760, 0.500, 0.240"),
            Record(150, 75, 50, (38, 25, 12)),
        ),
        # types are added up; one that never drafted has nothing to add, one may not print all its positions
        (
            statistics("ngram-mod", 0, 0, 0, "") + statistics("draft-simple", 4, 8, 5, "0.750, 0.500"),
            OF_4,
        ),
        (
            statistics("ngram-mod", 31, 920, 527, "0.903, 0.806") + statistics("draft-simple", 4, 8, 5, "0.750, 0.500"),
            Record(928, 532, 35),
        ),
        (
            "statistics ngram_simple: #calls = 15, #gen drafts = 5, #acc drafts = 5, #gen tokens = 187, "
            "#acc tokens = 73\nstatistics draft: #calls = 10, #gen drafts = 10, #acc drafts = 10, "
            "#gen tokens = 110, #acc tokens = 98\n",
            Record(297, 171, 15),
        ),
        (statistics("draft-mtp", 4, 8, 5, "0.750, 0.500", 2), OF_4),
        (request(5, 8, "2.25") + statistics("draft", 4, 8, 5, "0.750, 0.500"), OF_4),
        (END + statistics("draft", 8, 16, 12, "0.750, 0.750"), Record(16, 12, 8, (6, 6))),
    ],
)
def test_statistics_of_llama_cpp_count_from_the_beginning(text, expected):
    assert read(text)[0] == expected


@pytest.mark.parametrize(
    ("text", "expected", "sentences"),
    [
        (SCRAPED.replace("8.0", "7.0").replace("5.0", "3.0") + SCRAPED, OF_4, 2),  # since when, and that one is taken
        (LOG + SCRAPED, OF_4, 2),
        (
            LOG + statistics("draft", 4, 8, 5, "0.750, 0.500") + SCRAPED.replace("8.0", "9.0"),
            Record(9, 5, 4, (3, 2)),
            3,
        ),
        (LOG + json.dumps(RESPONSE) + "\n" + LOG, OF_43, 1),
        ("server up\n2026 INFO [api.py:1] answered " + json.dumps(RESPONSE) + "\nGET / 200\n", OF_43, 0),
        (json.dumps(RESPONSE) + "\n" + json.dumps(RESPONSE | {"id": "two"})[:-30], OF_43, 1),
        (json.dumps(VLLM)[:-3] + "\n" + json.dumps(RESPONSE), OF_43, 1),
    ],
)
def test_what_stands_twice_in_a_file_counts_once_and_what_is_cut_does_not(text, expected, sentences):
    record, notes = read(text)
    assert record == expected
    assert len(notes) == sentences


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_draft_tokens": 9},
        {"num_spec_steps": 44},
        {"num_accepted_draft_tokens": 11},
        {"acceptance_histogram": [39, 1, 1, 2]},
        {"acceptance_histogram": [39, 1, 0, 3.5]},
        {"acceptance_histogram": {"-1": 3}},
        {"acceptance_histogram": "x"},
        {"acceptance_histogram": {"a": 1}},
        {"acceptance_histogram": ["x"]},
        {"num_draft_tokens": -1, "num_accepted_draft_tokens": -1},
        {"num_draft_tokens": float("inf")},
        {"num_draft_tokens": float("nan")},
        {"num_spec_tokens": 10**12},
    ],
)
def test_a_record_that_contradicts_itself_is_refused(wrong):
    with pytest.raises(EngineError):
        read(json.dumps(VLLM | wrong))


COUNTERS = {"num_drafts": 4, "num_draft_tokens": 8, "num_accepted_tokens": 5}


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "[]", "{}", '{"num_draft_tokens": "x", "num_accepted_tokens": 1}', "17"),
        json.dumps({"num_draft_tokens": 1, "num_accepted_tokens": 1, "num_drafts": []}),
        *("[" * 100_000, '[{"a":' * 100_000),
        *(json.dumps(COUNTERS | {"num_accepted_tokens_per_pos": some}) for some in ([3, 3], [2, 3], [5, 0])),
        json.dumps(COUNTERS | {"num_drafts": 0}),
        request(9, 8, "2.25"),
        SCRAPED.replace("} 5.0", "} 9.0"),
        json.dumps({"timings": {"draft_n": 0, "draft_n_accepted": 0}}),
        window("1.00", 0, 0, "0.000, 0.000"),
        json.dumps(RESPONSE)[:-30],
    ],
)
def test_what_is_no_record_is_refused(text):
    with pytest.raises(EngineError):
        read(text)
