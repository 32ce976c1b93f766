import datasets
import pytest

from specdec_trees.prompts.streams import UNREACHED, streamed

ASKED = {"split": "test", "name": None}


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    return tmp_path


def records(numbers):
    return [{"text": f"Line\u2028 {number}\n"} for number in numbers]


def read(numbers, count=None):
    """The first `count` records of a hub that has these; None for the numbers: it cannot be reached."""

    def load():
        if numbers is None:
            raise ConnectionError("no hub")
        return records(numbers)

    stream = streamed("some/pages", ASKED, load)
    return list(stream) if count is None else [next(stream) for _ in range(count)]


def test_what_was_read_is_there_without_the_hub_and_no_more():
    with pytest.raises(ConnectionError):
        read(None)
    assert read(range(9), 4) == read(None, 4) == records(range(4))
    with pytest.raises(ConnectionError):
        read(None, 5)


@pytest.mark.parametrize("error", UNREACHED)
def test_a_hub_that_cannot_be_reached_by_either_client_is_one_without_records(error):
    def refused():
        raise error("refused")

    with pytest.raises(error):
        list(streamed("some/pages", ASKED, refused))
    read(range(3))
    assert list(streamed("some/pages", ASKED, refused)) == records(range(3))


def test_all_that_there_is_ends_as_it_does_on_the_hub():
    assert read(range(3)) == read(None) == records(range(3))


def test_a_longer_reading_stays_and_another_content_takes_its_place():
    read(range(9), 6)
    read(range(9), 2)
    assert read(None, 6) == records(range(6))
    read([5, 7, 8], 2)
    assert read(None, 2) == records([5, 7])
    with pytest.raises(ConnectionError):
        read(None, 3)


def test_a_reading_that_broke_off_leaves_what_it_had():
    def broken():
        yield from records(range(3))
        raise TimeoutError

    with pytest.raises(TimeoutError):
        list(streamed("some/pages", ASKED, broken))
    assert read(None, 3) == records(range(3))


def test_other_arguments_are_another_dataset():
    def refused():
        raise ConnectionError("no hub")

    read(range(3))
    assert list(streamed("some/pages", ASKED, refused)) == records(range(3))
    for path, changes in (("some/pages", {"split": "train"}), ("other/pages", {})):
        with pytest.raises(ConnectionError):
            list(streamed(path, ASKED | changes, refused))


def test_a_damaged_file_is_none(cache):
    read(range(3))
    (file,) = cache.rglob("*.jsonl")
    file.write_text("{")
    with pytest.raises(ConnectionError):
        read(None)
    assert read(range(3)) == read(None)


@pytest.mark.parametrize("error", UNREACHED)
def test_a_stream_that_breaks_goes_on_with_what_an_earlier_start_read(error):
    def broken(numbers=(0, 1)):
        yield from records(numbers)
        raise error("gone")

    read(range(5))
    assert list(streamed("some/pages", ASKED, broken)) == records(range(5))
    with pytest.raises(error):
        list(streamed("some/pages", ASKED, lambda: broken((0, 7))))
    assert read(None) == records(range(5)), "all that there is stays"
    assert read([0, 7, 8], 2) == read(None, 2) == records([0, 7]), "until the hub has something else"
