"""``prep.WriteShards``: datasets from pipelines of the user, on Beam's local runner."""

import re
from collections import Counter

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.coders.coder_impl import create_InputStream
from apache_beam.metrics import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from tests.errors import raises
from tests.pictures import image_file
from tfshards import prep
from tfshards.schemas import InputError, Manifest, read_manifest
from tfshards.schemas.storage import LocalPath

Features = dict[str, object]
Element = tuple[str, Features]


def png(number: int) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (4 + number % 3, 5, 3), dtype=np.uint8)
    return image_file(pixels)


def photo(number: int) -> Element:
    label = ("cat", "dog")[number % 2]
    return f"{label}/{number:02d}.png", {"image": png(number), "label": label}


@pytest.fixture(scope="module")
def photos() -> list[Element]:
    return [photo(number) for number in range(21)]


def write(elements, transform: prep.WriteShards, *arguments: str) -> None:
    """Run a pipeline on Beam's local runner; each of ``elements`` is in a bundle of its own."""
    options = PipelineOptions(list(arguments))
    with beam.Pipeline(FnApiRunner(), options) as pipeline:
        result = pipeline | beam.Create(list(elements)) | transform
        assert_that(result.written | beam.combiners.Count.Globally(), equal_to([1]))


def in_steps(elements, transform: prep.WriteShards, *, repeats: int = 1) -> str:
    """Take the steps of a pipeline without a runner, in two bundles; repeat each step as runners may."""
    steps, elements = transform._steps(), list(elements)
    descriptions: list[tuple[object, ...]] = []
    for half in (elements[::2], elements[1::2]):
        for _ in range(repeats):
            bundle = steps.bundle()
            described = [bundle.describe(*element) for element in half]
            bundle.close()
        descriptions += described
    for _ in range(repeats):
        assigned = [*steps.plan((b"", descriptions))]
    write_all(steps, assigned, repeats)
    group = assigned[0][0], ()
    assigned = [[*steps.balance(group)] for _ in range(repeats)][-1]
    write_all(steps, assigned, repeats)
    return [[*steps.commit(group)] for _ in range(repeats)][-1][0].build_id


def planned(elements: list[Element], transform: prep.WriteShards) -> tuple[object, list]:
    """Take the first two steps; return all steps, and what the second one yields."""
    steps = transform._steps()
    bundle = steps.bundle()
    descriptions = [bundle.describe(*element) for element in elements]
    bundle.close()
    return steps, [*steps.plan((b"", descriptions))]


def write_all(steps: object, assigned, repeats: int) -> None:
    for one in assigned:
        for _ in range(repeats):
            assert [*steps.write(one)] == [(one[0], None)]


def test_elements_give_the_shards_of_a_folder_with_the_same_images(photos, tmp_path, quiet_build):
    for key, features in photos:
        path = tmp_path / "folder" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(features["image"])
    quiet_build(prep.ImageFolder(tmp_path / "folder"), tmp_path / "built" / "pets", shards=4, seed=3)
    out = tmp_path / "written" / "pets"
    write(photos, prep.WriteShards(out, shards=4, seed=3))
    built, written = read_manifest(tmp_path / "built" / "pets"), read_manifest(out)
    assert [shard.digest for shard in written.shards] == [shard.digest for shard in built.shards]
    assert written.schema == built.schema
    assert written.totals == built.totals
    assert prep.verify(out, deep=True)
    assert not list(out.glob(".staged-*"))


def varints(payload: bytes) -> list[int]:
    stream, found = create_InputStream(payload), []
    while stream.size():
        found.append(stream.read_var_int64())
    return found


def test_beam_shuffles_less_than_150_bytes_of_an_element(tmp_path):
    def big(number: int) -> Element:
        image = np.random.default_rng(number).bytes(100_000)
        return f"folder/of/photos/IMG_{number:06}.jpg", {"image": image, "label": number % 3}

    unchecked = prep.ImageOptions(check="none")
    pipeline = beam.Pipeline(FnApiRunner())
    transform = prep.WriteShards(tmp_path / "out", images=unchecked, shards=3)
    _ = pipeline | beam.Create(range(40)) | beam.Map(big) | transform
    result = pipeline.run()
    result.wait_until_finish()
    infos = [info for info in result.monitoring_infos() if info.urn.endswith("sampled_byte_size:v1")]
    # count, sum, smallest and largest of the elements of each collection
    largest = sorted(varints(info.payload)[3] for info in infos)
    # one collection has the images: that of the user; another has the group of all descriptions
    assert largest[-1] > 100_000
    assert 40 * 80 < largest[-2] < 40 * 150


@pytest.fixture(scope="module")
def with_rejects(photos) -> list[Element]:
    bad = [(f"cat/bad-{number}.png", {"image": b"no image", "label": "cat"}) for number in range(3)]
    return [*bad, *photos]


def test_rejected_images_leave_exactly_balanced_shards(with_rejects, tmp_path, contents, caplog):
    options = prep.Options(max_rejected=0.2)
    out = tmp_path / "one" / "pets"
    caplog.set_level("INFO", "tfshards")
    write(with_rejects, prep.WriteShards(out, shards=4, seed=1, options=options))
    assert any(re.match("balance after rejects: [234] of 4 shards to write", one) for one in caplog.messages)
    manifest = read_manifest(out)
    assert sorted(shard.num_examples for shard in manifest.shards) == [5, 5, 5, 6]
    assert (manifest.totals.accepted, manifest.totals.rejected) == (21, 3)
    assert prep.verify(out, deep=True)
    again = tmp_path / "repeated" / "pets"
    in_steps(with_rejects, prep.WriteShards(again, shards=4, seed=1, options=options), repeats=2)
    assert contents(again) == contents(out)


@pytest.mark.parametrize(
    "place",
    ["prep.building.write_shards.conclude"]
    + [f"schemas.storage.LocalPath.{step}" for step in ("put", "replace_if", "delete_tree")],
)
def test_a_commit_that_is_killed_is_repeated(place, photos, tmp_path, contents, monkeypatch):
    in_steps(photos, prep.WriteShards(tmp_path / "once" / "pets", shards=4))
    out = tmp_path / "killed" / "pets"
    steps, assigned = planned(photos, prep.WriteShards(out, shards=4))
    write_all(steps, assigned, 1)
    group = assigned[0][0], ()

    def kill(*arguments: object, put=LocalPath.put, **__: object) -> None:
        if place.endswith(".put") and arguments[0].name != "dataset.json":
            return put(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"tfshards.{place}", kill)
        with pytest.raises(KeyboardInterrupt):
            [*steps.commit(group)]
    # runners may repeat a step that was done, too
    assert [*steps.balance(group)] == [(group[0], None)]
    assert len([*steps.commit(group)]) == 1
    assert contents(out) == contents(tmp_path / "once" / "pets")
    write_all(steps, assigned[:2], 1)


def test_another_dataset_is_replaced_only_on_demand(photos, tmp_path):
    out = tmp_path / "pets"
    first = in_steps(photos, prep.WriteShards(out, shards=4))
    # of the same size
    changed = [(key, {**features, "label": "cat"}) for key, features in photos[1:2]]
    others = [photos[0], *changed, *photos[2:]]
    for elements in (photos[1:], others):
        with pytest.raises(InputError, match="other inputs"):
            in_steps(elements, prep.WriteShards(out, shards=4))
    assert read_manifest(out).build_id == first
    second = in_steps(others, prep.WriteShards(out, shards=4, overwrite=True))
    assert second != first
    assert read_manifest(out).build_id == second


def test_a_dataset_of_a_pipeline_is_appended_to(photos, tmp_path):
    out = tmp_path / "pets"
    in_steps(photos, prep.WriteShards(out, shards=4))
    shards = read_manifest(out).shards
    # of any iterable, with the known elements or without them
    for elements, count in (([*photos, photo(30)], 22), ([photo(31), photo(32)], 24)):
        appended = prep.append(prep.Examples(elements), out)
        assert appended.num_examples == count
        assert set(shards) <= set(appended.shards)
    assert prep.verify(out, deep=True)
    with raises(InputError, "holds a dataset", code="dataset-differs"):
        in_steps(photos, prep.WriteShards(out, shards=4))


def test_without_elements_the_pipeline_fails_and_leaves_nothing(tmp_path):
    pipeline = beam.Pipeline(FnApiRunner())
    _ = pipeline | beam.Create([]) | prep.WriteShards(tmp_path / "out")
    with pytest.raises(InputError, match=f"{tmp_path}/out: the PCollection has no elements"):
        pipeline.run()
    assert not (tmp_path / "out").exists()


def test_the_counters_of_a_pipeline_are_those_of_its_dataset(with_rejects, tmp_path):
    options = prep.Options(max_rejected=0.2)

    def run() -> tuple[dict[str, int], dict[str, int]]:
        pipeline = beam.Pipeline(FnApiRunner())
        elements = pipeline | beam.Create(with_rejects)
        _ = elements | prep.WriteShards(tmp_path / "pets", shards=4, seed=1, options=options)
        result = pipeline.run()
        result.wait_until_finish()
        found = result.metrics().query(MetricsFilter().with_namespace("tfshards"))
        counts: Counter[str] = Counter()
        for each in found["counters"]:
            counts[each.key.metric.name] += each.committed
        return dict(counts), {each.key.step: each.committed.count for each in found["distributions"]}

    counts, times = run()
    written = counts.pop("bytes")
    assert counts == {"accepted": 21, "rejected": 3, "rejected_unreadable": 3}
    # the first layout, and then the shards that changed because of the rejected ones
    assert times["WriteShards/WriteFirst"] == 4
    assert 1 <= times["WriteShards/WriteFinal"] <= 4
    assert written > sum(shard.num_bytes for shard in read_manifest(tmp_path / "pets").shards)
    # the dataset is up to date
    assert run() == (counts, {})


def test_rejected_elements_are_a_pcollection(with_rejects, tmp_path):
    options = prep.Options(max_rejected=0.2, duplicates="drop")
    twice = [*with_rejects, ("zebra.png", with_rejects[5][1])]
    for _ in range(2):
        with beam.Pipeline(FnApiRunner()) as pipeline:
            elements = pipeline | beam.Create(twice)
            result = elements | prep.WriteShards(tmp_path / "pets", options=options)
            assert result.written.element_type == Manifest
            expected = [
                *((f"cat/bad-{number}.png", "unreadable", "starts with 6e 6f 20") for number in range(3)),
                ("zebra.png", "duplicate", "has the content of '"),
            ]
            assert_that(result.rejected | beam.Map(lambda one: (*one[:2], one[2][:20])), equal_to(expected))
            assert_that(result.written | beam.Map(lambda one: one.totals.rejected), equal_to([4]), "written")
    rejects = tmp_path / "pets" / read_manifest(tmp_path / "pets").rejects_path
    assert len(rejects.read_text().splitlines()) == 4


def test_windows_of_the_user_do_not_divide_the_dataset(tmp_path):
    with beam.Pipeline(FnApiRunner()) as pipeline:
        elements = pipeline | beam.Create([(str(number), {"x": number}) for number in range(6)])
        stamped = elements | beam.Map(lambda one: beam.window.TimestampedValue(one, int(one[0])))
        windowed = stamped | beam.WindowInto(beam.window.FixedWindows(2))
        _ = windowed | prep.WriteShards(tmp_path / "out", shards=2)
    assert [shard.num_examples for shard in read_manifest(tmp_path / "out").shards] == [3, 3]


def test_a_worker_with_other_versions_is_refused(photos, tmp_path, monkeypatch):
    monkeypatch.setattr("tfshards.prep.engines.transform.own_versions", lambda: {"tfshards": "0.0"})
    with pytest.raises(Exception, match=r"a worker on \S+ has tfshards \S+, but the command runs with 0\.0"):
        write(photos, prep.WriteShards(tmp_path / "pets"))


# each error names the element, the value or both; tests/conformance has wrong values of examples
WRONG = {
    "missing": ({"i": "image"}, [("a", {"x": 1})], "^a: .*'i'"),
    "a key": ({}, [("a", {"key": 1, "x": 1})], "^a: .* role key"),
    "label": ({"y": "label"}, [("a", {"y": -2})], "^a: .*'y' is -2"),
    "split": ({"s": "split"}, [("a", {"s": "a b", "x": 1})], "^a: .*'a b'"),
    "other values": ({}, [("b", {"x": 1}), ("a", {"x": 1, "z": 2})], "'z'.*'a'"),
    "other dtypes": ({}, [("b", {"x": 1}), ("a", {"x": 1.5})], "'x' is .*float64.* in 'a' but .*int64.* 'b'"),
    "other roles": ({}, [("a", {"x": 1, "split": "a"}), ("c", {"x": 1}), ("b", {"x": 2})], "'split'.*'b'"),
    "keys": ({}, [("a", {"x": 1}), ("a", {"x": 2})], "'a'"),
    "labels": ({"y": "label"}, [("a", {"y": 1}), ("b", {"y": "x"})], "integers and text"),
    "no class": ({"label": "label"}, [("a", {"label": "cat"}), ("b", {"label": "dog"})], "'dog'"),
    "unknown number": ({"label": "label"}, [("a", {"label": 0}), ("b", {"label": 1})], "class names"),
}


def test_wrong_elements_are_named(tmp_path):
    for name, (roles, given, message) in WRONG.items():
        names = ["cat"] if "label" in roles else None
        with pytest.raises(InputError, match=message):
            in_steps(given, prep.WriteShards(tmp_path / "out", roles, class_names=names))
        assert not (tmp_path / "out" / "dataset.json").exists(), name


def test_damaged_or_missing_copies_are_reported(photos, tmp_path):
    steps, assigned = planned(photos, prep.WriteShards(tmp_path / "out", shards=2))
    (spilled,) = tmp_path.glob("out/.staged-*/*.spill")
    spilled.write_bytes(spilled.read_bytes()[:-1])
    with pytest.raises(InputError, match="were damaged after they were listed"):
        write_all(steps, assigned, 1)
    spilled.unlink()
    with pytest.raises(InputError, match=f"{spilled}: cannot be read"):
        write_all(steps, assigned, 1)
