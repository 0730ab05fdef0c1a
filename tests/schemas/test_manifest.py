"""Manifests that nobody may trust: ``read_manifest`` reads sound ones, and names the places of faults."""

import dataclasses
import json
import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.errors import raises
from tests.format_reader import with_digest
from tests.tables import mostly_nightly
from tfshards import schemas
from tfshards.prep.building.commit import check_readable
from tfshards.schemas import Feature, FormatError, InputError, Manifest, Schema, Split, Totals, read_manifest
from tfshards.schemas.storage.stored import METADATA

GOLDEN = Path(__file__).parent / "golden" / "dataset.json"

IMAGE = Feature("image", "image", "uint8", (None, None, 3))
LABEL = Feature("label", "label", "int64")
KEY = Feature("key", "bytes", "bytes")
DIGEST = "sha256:" + "0123456789abcdef" * 4
LABELS_DIGEST = "sha256:" + "00112233" * 8
KEYS_DIGEST = "sha256:" + "44556677" * 8
OTHER_TYPES = [None, True, 7, 2.5, "text", ["item"], {"field": 1}]


def shard(path, num_examples=10, num_bytes=None, labels_digest=LABELS_DIGEST, keys_digest=KEYS_DIGEST):
    num_bytes = 100 * num_examples if num_bytes is None else num_bytes
    digests = (DIGEST, "sha256:" + "fedcba9876543210" * 4, "00ff" * 4)
    optional = labels_digest, keys_digest
    return schemas.Shard(path, num_examples, num_bytes, num_bytes, *digests, "ff" * 8, *optional)


def photos() -> Manifest:
    """Return a small manifest with every kind of content."""
    train = [shard(f"3f9a2c1b/photos-train.tfrecord-{index:05d}-of-00002") for index in range(2)]
    val = [shard("3f9a2c1b/photos-val.tfrecord-00000-of-00001", 3)]
    return Manifest(
        name="photos",
        build_id="3f9a2c1b",
        folder="3f9a2c1b-2",
        schema=Schema((IMAGE, LABEL, KEY), ("cat", "h\u00fcndchen", "na\udcefve")),
        splits={
            "train": Split(tuple(train), {"cat": 12, "h\u00fcndchen": 8, "na\udcefve": 0}),
            "val": Split(tuple(val), {"cat": 1, "h\u00fcndchen": 1, "na\udcefve": 1}),
        },
        totals=Totals(
            30,
            23,
            2,
            5,
            {"rejected": {"truncated": 2}, "skipped": {"hidden name": 4, "other file": 1}},
            {"orientation applied": 2},
        ),
        options={"source": "images", "seed": 0, "resize": None, "shards": {"train": 2, "val": 1}},
        split_cuts={"splits": ["train", "val"], "all": ["e6ff"]},
        rejects_digest=DIGEST,
        inputs_digest="sha256:" + "4567cdef" * 8,
        removed_digest=KEYS_DIGEST,
        views={"3f9a2c1b-2/labels.txt": DIGEST},
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("manifest")


@pytest.fixture(scope="module")
def parsed(folder):
    """Read a manifest of some text."""

    def parse(text: str | bytes) -> Manifest:
        data = text if isinstance(text, bytes) else text.encode()
        (folder / "dataset.json").write_bytes(data)
        return read_manifest(folder)

    return parse


@pytest.fixture(scope="module")
def problems(parsed):
    """The places and messages of a document's faults, also after its digest has been adapted."""

    def find(top: dict) -> list[tuple[str, str]]:
        text = json.dumps(top).encode()
        try:
            parsed(with_digest(text) if b'"digest": "sha256:' in text[-90:] else text)
        except FormatError as error:
            return [(problem.place, problem.message) for problem in error.problems]
        return []

    return find


def document():
    return json.loads(photos().to_text())


def at(value, place):
    for step in place:
        value = value[step]
    return value


def changed(place, value):
    """Return the document of ``photos`` with ``value`` at ``place``, a tuple of names and indexes."""
    top = document()
    at(top, place[:-1])[place[-1]] = value
    return top


def spelled(place):
    """Return ``place`` as it is spelled in problems."""
    text = ""
    for step in place:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if step.isprintable() and step else repr(step))
    return text


def places(value, place=()):
    """Yield the place of every value in the document whose form the format fixes."""
    if place:
        yield place
    if place in (("options",), ("split_cuts",)):
        return
    steps = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for step in steps:
        yield from places(value[step], (*place, step))


REASONS = [("totals", "reasons", outcome) for outcome in ("rejected", "skipped")]
COUNTS = [*REASONS, ("totals", "conversions")]


# Objects whose names are data, so that one more or less is not an unknown or missing field.
def is_map(place):
    return place[-1:] in (("splits",), ("label_counts",), ("views",)) or place in COUNTS


KEYS = st.binary(max_size=4).map(lambda name: name.decode("utf-8", "surrogateescape"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def test_the_format_is_pinned(parsed):
    assert photos().to_text() == GOLDEN.read_text(encoding="ascii")
    assert parsed(GOLDEN.read_bytes()) == photos()


def test_a_value_of_a_wrong_type_a_missing_and_an_unknown_field_are_reported_with_their_places(problems):
    text = photos().to_text()
    for place in [(), *places(json.loads(text))]:
        top = json.loads(text)
        value = at(top, place)
        if isinstance(value, dict) and not is_map(place) and place not in (("options",), ("split_cuts",)):
            value["units"] = 1
            # the digest stands last
            top["digest"] = top.pop("digest")
            assert [where for where, _ in problems(top)] == [spelled((*place, "units"))]
            del value["units"]
        if not place:
            continue
        parent, step = at(top, place[:-1]), place[-1]
        # a dimension is an integer or null
        allowed = {int, type(None)} if place[-2:-1] == ("shape",) else {type(parent[step])}
        for other in OTHER_TYPES:
            if type(other) not in allowed:
                parent[step] = other
                assert [where for where, _ in problems(top)] == [spelled(place)]
        # an outcome without reasons may be left out, and views if there are none
        if isinstance(step, str) and not is_map(place[:-1]) and place not in [*REASONS, ("views",)]:
            del parent[step]
            assert [where for where, _ in problems(top)] == [spelled(place)]


@given(st.data())
def test_any_value_at_any_place_is_read_or_reported(problems, parsed, data):
    top = document()
    place = data.draw(st.sampled_from(list(places(top))))
    at(top, place[:-1])[place[-1]] = data.draw(JSON)
    found = problems(top)
    assert all(place.isprintable() and message.isprintable() for place, message in found)
    if not found:
        again = json.loads(parsed(with_digest(json.dumps(top).encode())).to_text())
        # the digests of two spellings differ
        assert again | {"digest": ""} == top | {"digest": "", "requires": again["requires"]}


@pytest.mark.parametrize("first", mostly_nightly(range(8), kept=[0]))
def test_a_changed_byte_anywhere_is_detected(first, parsed):
    text = photos().to_text().encode()
    for place in range(first, len(text), 8):
        for bit in {1, place // 8 % 8}:
            with pytest.raises(FormatError):
                parsed(text[:place] + bytes([text[place] ^ 1 << bit]) + text[place + 1 :])


TEXTS = {
    "edited": photos().to_text().replace('"seed": 0', '"seed": 1'),
    "other spaces": photos().to_text().replace('"digest": ', '"digest" : '),
    "another order": json.dumps(document(), sort_keys=True),
    "a number": "3",
    "a list": "[{}]",
    "a byte order mark": "\ufeff{}",
    "deep": "[" * 100_000,
    "a long number": "9" * 5000,
    "no UTF-8": b'{"name": "\xff"}',
    "empty": "{}",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_text_that_is_no_manifest_is_refused(text, parsed, folder):
    with pytest.raises(FormatError) as caught:
        parsed(text)
    assert str(caught.value).startswith(f"{folder}/dataset.json: ")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.code, str(again)) == ("format", str(caught.value))
    assert all(line.isprintable() and len(line) < 500 for line in str(caught.value).splitlines())


S, F = "splits val shards 0", "schema features"
FEATURE = {"name": "image", "kind": "image", "dtype": "uint8", "shape": [None, None, 3]}
RAW = {"name": "x", "kind": "raw", "dtype": "uint8", "shape": []}
# a place, a value, and where the contradiction is reported if not there
CONTRADICTIONS = [
    *(("name", name) for name in ("", ".h", "a-", "a--b", "a/b", "a\n", "x" * 81)),
    *(("build_id", text) for text in ("3F9A2C1B", "3f9a2c1")),
    ("format_version", 0),
    ("splits", {}),
    ("splits train shards", []),
    ("splits val num_examples", 4),
    ("splits val label_counts cat", 2, "splits.val.label_counts"),
    # other systems and stores, what breaks a report or a call, other spellings, names of other files
    *((f"{S} path", path) for path in ("", "a\\b", "a\nb", "\udc80", "/etc/passwd", "C:a")),
    *((f"{S} path", path) for path in ("../a", "a/../../b", "a//b", "a/", "part/index/a.idx")),
    *((f"{S} path", path) for path in ["label.labels.txt", "dataset_info.json", "features.json"]),
    *((f"{S} path", path) for path in ["3f9a2c1b/build.json", "3f9a2c1b/dataset.json"]),
    *(("folder", name) for name in ("..", "3F9A2C1B", "3f9a2c1b-0", "3f9a2c1b-2/")),
    *(
        ("views", {path: DIGEST}, f"views.{path}")
        for path in ("../x", "a\\b", "/x", "index/x", "3f9a2c1b/dataset.json", "3f9a2c1b/work/x")
    ),
    ("removed_digest", "md5:0"),
    ("folder", ""),
    (f"{S} path", photos().shards[0].path, "splits"),
    (f"{S} digest", "md5:0123"),
    *((f"{S} num_examples", number) for number in (2**63, -1)),
    *((f"{S} {name}", "md5:0") for name in ("index_digest", "labels_digest", "keys_digest")),
    *((f"{S} {name}", "0" * 17) for name in ("examples_digest", "last_bytes")),
    *zip(("compression", "rejects_digest", "inputs_digest"), ("zstd", "md5:0", "md5:0"), strict=True),
    ("totals entries", 31),
    ("totals accepted", 22, "totals.entries"),
    ("totals entries", 2**63),
    ("totals", Totals(29, 22, 2, 5, photos().totals.reasons).to_json(), "totals.accepted"),
    (f"{F} 1 dtype", "uint64"),
    (F, [], "schema.features"),
    (F, [KEY.to_json(), KEY.to_json()], "schema.features"),
    ("schema class_names", ["a", "b", "a"]),
    *((f"{F} 0 name", name) for name in ("", "a\nb")),
    (f"{F} 0 kind", "sound"),
    (f"{F} 0 dtype", "int8"),
    # arrays alone are declared as pixels
    (f"{F} 0 pixels", "raw"),
    *((f"{F} 0 shape", shape) for shape in ([None, None], [4, 4, 2])),
    (f"{F} 0 shape", [-1, None, 3], "schema.features[0].shape[0]"),
    *(
        (f"{F} 0", {**FEATURE, "kind": kind, "dtype": dtype, "shape": shape}, "schema.features[0].shape")
        for kind, dtype, shape in (
            ("mask", "uint8", [None, None, 3]),
            *(("raw", "uint8", sides) for sides in ([None], [1] * 33, [2**32, 2**31], [0, 2**62, 4])),
            *(("bytes", "bytes", [None, size]) for size in (None, 4)),
            *((kind, "int64", [None, 0]) for kind in ("label", "int")),
            *(("float", "float32", sides) for sides in ([2, None], [None, 2, 2])),
        )
    ),
    # above 2^63 and 2^24 integers do not fit int64 and float32, which would also cut fractions off
    *(
        (f"{F} 0", {**FEATURE, "kind": kind, "dtype": dtype, "shape": []}, "schema.features[0].dtype")
        for kind, dtypes in {
            "int": ("uint64", "float32"),
            "label": ("bool",),
            "float": ("float64",),
            "raw": ("bytes",),
            "bytes": ("uint8",),
        }.items()
        for dtype in dtypes
    ),
]


def steps_of(place):
    return tuple(int(step) if step.isdecimal() else step for step in place.split())


@pytest.mark.parametrize("row", CONTRADICTIONS, ids=str)
def test_contradictory_fields_are_reported(row, problems):
    steps = steps_of(row[0])
    where = row[2] if len(row) > 2 else spelled(steps)
    assert where in [place for place, _ in problems(changed(steps, row[1]))]


R = "schema features 0"
# a place, and a value at a limit
ACCEPTED = [
    *((f"{S} path", path) for path in ("part one/größe.tfrecord", "a/b/c", "index.tfrecord", "a..b")),
    *((R, {**RAW, "shape": shape}) for shape in ([1] * 32, [2**63 - 1], [0], [0, 2**62])),
    ("splits empty", Split((shard("empty", 0, 0),)).to_json()),
]


@pytest.mark.parametrize(("place", "value"), ACCEPTED, ids=str)
def test_values_at_their_limits_are_accepted(place, value, problems):
    assert problems(changed(steps_of(place), value)) == []


@pytest.mark.parametrize("requires", ["tfshards>=3.2", None, ["tfshards>=3"], "\x1b[31m"])
def test_a_newer_format_is_reported_with_the_release_that_reads_it_and_nothing_else(requires, problems):
    newer = {"format_version": 2, "requires": requires, "shards": "elsewhere"}
    ((place, message),) = problems(newer)
    assert place == "format_version"
    assert ("tfshards>=3.2" in message) == (requires == "tfshards>=3.2")
    assert message.isprintable()


CONTENT = [
    {"name": "pictures"},
    {"schema": Schema((IMAGE, LABEL, KEY), ("cat", "h\u00fcndchen", "rabbit"))},
    {"options": {"seed": 1}},
    {"rejects_digest": LABELS_DIGEST},
    {"inputs_digest": LABELS_DIGEST},
    {"removed_digest": LABELS_DIGEST},
    {"compression": "gzip"},
    {"splits": dict(reversed(photos().splits.items()))},
    {"splits": {"train": photos().splits["train"]}},
]


def with_shards(change):
    splits = {
        name: dataclasses.replace(split, shards=tuple(map(change, split.shards)))
        for name, split in photos().splits.items()
    }
    return dataclasses.replace(photos(), splits=splits)


def test_the_id_of_the_content_depends_on_it_and_on_nothing_else():
    found = {photos().content_id(), *(dataclasses.replace(photos(), **each).content_id() for each in CONTENT)}
    for one in photos().shards:
        other = with_shards(
            lambda s, one=one: dataclasses.replace(s, digest=LABELS_DIGEST) if s == one else s
        )
        found.add(other.content_id())
    assert len(found) == 1 + len(CONTENT) + 3
    assert all(re.fullmatch("[0-9a-f]{8}", each) for each in found)
    renamed = with_shards(lambda s: dataclasses.replace(s, path=f"{s.path}-x"))
    totals = dataclasses.replace(renamed.totals, entries=31, skipped=6)
    other = dataclasses.replace(renamed, build_id="00000000", totals=totals)
    assert other.content_id() == photos().content_id()


def test_a_folder_is_no_manifest(tmp_path):
    (tmp_path / "dataset.json").mkdir()
    with raises(InputError, "cannot be read"):
        read_manifest(tmp_path)


def test_an_invalid_manifest_is_refused_before_it_is_written():
    path = Path("dataset.json")
    check_readable(photos().to_text().encode(), path)
    for faulty in ({"totals": Totals(1, 1), "rejects_digest": ""}, {"options": {"x": float("nan")}}):
        with pytest.raises(ValueError, match=r"splits hold 23|JSON"):
            check_readable(dataclasses.replace(photos(), **faulty).to_text().encode(), path)
    with pytest.raises(InputError, match=f"{path}: .* a manifest or a file of metadata has at most"):
        check_readable(bytes(METADATA.most_bytes + 1), path)
