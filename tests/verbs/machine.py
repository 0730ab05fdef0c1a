"""A dataset beside a dict of its examples: verbs change both, and they stay equal.

The machine uses the public functions, and reads datasets with a reader that knows docs/format.md alone. It
knows nothing else of the files of a dataset, so that the layout of the folder may change.
"""

import json
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.format_reader import companion, read_dataset, read_rejects, rejects_path
from tfshards import prep
from tfshards.schemas import InputError, TfshardsError

from .inputs import Inputs, Row
from .places import Disk, Place

# Files of a user, in the folder of a dataset. Some have names like those of tfshards.
FOREIGN = {
    "notes.txt": b"mine",
    "mine/photo.png": b"mine, too",
    "data-train.tfrecord-00000-of-00001": b"looks like a shard",
    "0123abcd/data-train.tfrecord-00000-of-00001": b"in a folder that looks like that of a build",
    "0123abcd/build.json": b"{}\n",
}
# and in a folder beside it
BESIDE = {"notes.txt": b"beside", "index/photo.idx": b"0 1\n"}

# how many of the 12 rules run before one runs again
_REST = 8
# a flipped bit, a missing end, a missing file
DAMAGE = ("flip", "cut", "delete")

Splits = Mapping[str, Mapping[str, object]]
Sizes = Mapping[str, list[int]]


@dataclass(frozen=True)
class Model:
    """What a generation of a dataset holds.

    Attributes:
        splits: the examples by split and key.
        classes: the names of the classes, in the order of their numbers.
        rejected: the keys of rejected inputs.
        removed: keys that ``append`` leaves out.
        made: ``build``, ``append`` of only builds and appends, or ``derive``.
        build: shards, seed, compression and number of rows of a build that nothing has followed.
        has_one_source: whether ``append`` knows the splits of new examples.
        sizes: number of examples of each shard, by split.
    """

    splits: Splits
    classes: tuple[str, ...]
    rejected: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()
    made: str = "build"
    build: tuple[int, int, str, int] | None = None
    has_one_source: bool = True
    sizes: Sizes = field(default_factory=dict)

    @property
    def keys(self) -> list[str]:
        """All keys, sorted."""
        return sorted(key for split in self.splits.values() for key in split)


def is_balanced(sizes: list[int]) -> bool:
    """Return whether shards differ by at most one example."""
    return max(sizes) - min(sizes) <= 1


def in_turn(**strategies: st.SearchStrategy) -> Callable:
    """Return a rule that does not run again before some others, so that few examples run all of them."""

    def decorate(function):
        @precondition(lambda self: function.__name__ not in self.recent)
        @rule(**strategies)
        @wraps(function)
        def run(self, **arguments):
            self.recent.append(function.__name__)
            self.is_sound = False
            function(self, **arguments)

        return run

    return decorate


class Verbs(RuleBasedStateMachine):
    """Verbs in any order on a dataset, in each of some places, in which they give the same bytes.

    Attributes:
        inputs: makes inputs in a folder.
        places: makes places in a folder; the first one is judged, the others equal it.
    """

    inputs: ClassVar[Callable[[Path], Inputs]]
    places: ClassVar[Callable[[Path], list[Place]]] = staticmethod(lambda home: [Disk(home)])

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.stack.enter_context(prep.limited_jobs(1))
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="verbs-")))
        self.of = self.inputs(folder / "inputs")
        self.of.folder.mkdir()
        self.all_places = self.places(folder / "home")
        self.name = "data"
        self.num_names = 0
        self.rows: list[Row] = []
        self.models: dict[str, Model] = {}
        self.texts: dict[str, bytes] = {}
        self.current = ""
        self.is_sound = False
        self.recent: deque[str] = deque(maxlen=_REST)

    # What the rules share

    @property
    def model(self) -> Model:
        """What the dataset holds now."""
        return self.models[self.current]

    @property
    def manifest(self) -> dict:
        """The manifest of the dataset."""
        return json.loads(self.texts[self.current])

    @property
    def first(self) -> Place:
        """The place that is judged."""
        return self.all_places[0]

    def new_rows(self, count: int) -> list[Row]:
        """Return rows that follow the others."""
        start = len(self.rows)
        return [Row(number, ("cat", "dog")[number % 2]) for number in range(start, start + count)]

    def call(self, verb: Callable[..., object], *, writes: bool = True) -> object:
        """Call a verb in each place, and return what it returned in all of them."""
        found = [verb(place, **place.options if writes else {}) for place in self.all_places]
        assert all(each == found[0] for each in found)
        return found[0]

    def refused(self, verb: Callable[..., object]) -> None:
        """Expect that a verb is refused in each place, and leaves each as it is."""
        before = [place.files(self.name) for place in self.all_places]
        for place in self.all_places:
            with pytest.raises(InputError):
                verb(place, **place.options)
        assert [place.files(self.name) for place in self.all_places] == before

    def examples(self, rows: list[Row], cuts: dict) -> dict[str, dict[str, object]]:
        """Return the examples of inputs by split and key."""
        found: dict[str, dict[str, object]] = {}
        for row in rows:
            found.setdefault(self.of.split(row, cuts), {})[self.of.key(row)] = self.of.example(row)
        return found

    def committed(self, model: Model, fits: Callable[[list[int], list[int], str], bool]) -> None:
        """Take a model for what a verb has written; ``fits`` judges old and new sizes of shards."""
        text = self.first.files(self.name)["dataset.json"]
        manifest = json.loads(text)
        sizes = {
            name: [shard["num_examples"] for shard in split["shards"]]
            for name, split in manifest["splits"].items()
        }
        for name, found in sizes.items():
            assert fits(model.sizes.get(name, []), found, name), (name, found)
        self.current = manifest["folder"]
        self.models[self.current], self.texts[self.current] = replace(model, sizes=sizes), text

    def unchanged(self, verb: Callable[..., object]) -> None:
        """Expect that a verb writes nothing."""
        before = [place.files(self.name) for place in self.all_places]
        self.call(verb)
        assert [place.files(self.name) for place in self.all_places] == before

    def new_name(self) -> str:
        """Return the name of a new folder."""
        self.num_names += 1
        return f"data{self.num_names}"

    def add_foreign_files(self) -> None:
        """Write files of a user into the dataset's folder."""
        for place in self.all_places:
            for path, content in FOREIGN.items():
                place.write(self.name, path, content)
        self.identities = [
            {path: place.identity(self.name, path) for path in FOREIGN} for place in self.all_places
        ]

    # The rules

    def build_call(self, shards: int, seed: int, compression: str, num_rows: int, **more: object):
        """Return a call of ``build``."""
        source, options = self.of.source(self.rows[:num_rows]), self.of.options(compression)
        return lambda place, **on: prep.build(
            source, place.path(self.name), shards=shards, seed=seed, options=options, **more, **on
        )

    def build(self, shards: int, seed: int, compression: str, **more: object) -> None:
        """Build a dataset of all rows."""
        arguments = shards, seed, compression, len(self.rows)
        call = self.build_call(*arguments, **more)
        manifest = self.call(call).to_json()
        splits = self.examples(self.rows, manifest["split_cuts"])
        classes, rejected = sorted({row.label for row in self.rows}), self.of.rejected(self.rows)
        for name, share in self.of.ratios.items():
            # of all inputs, also those that are rejected
            assert abs(len(splits[name]) - float(share) * len(self.rows)) <= 1 + len(rejected)
        model = Model(splits, tuple(classes), rejected, build=arguments)
        self.committed(model, lambda _, new, __: len(new) == shards and is_balanced(new))
        self.unchanged(call)

    @initialize(
        count=st.integers(12, 15), shards=st.integers(1, 3), compression=st.sampled_from(["none", "gzip"])
    )
    def begin(self, count, shards, compression):
        for place in self.all_places:
            for path, content in BESIDE.items():
                place.write("beside", path, content)
        self.rows = self.new_rows(count)
        self.build(shards, 0, compression)
        self.add_foreign_files()

    @in_turn(shards=st.integers(1, 3), seed=st.integers(1, 9), compression=st.sampled_from(["none", "gzip"]))
    def build_again(self, shards, seed, compression):
        """Build all rows with other options."""
        if (shards, seed, compression, len(self.rows)) == self.model.build:
            return
        self.refused(self.build_call(shards, seed, compression, len(self.rows)))
        self.build(shards, seed, compression, overwrite=True)

    @in_turn(count=st.integers(1, 6), new=st.booleans(), by_paths=st.booleans(), wants_two=st.booleans())
    def append_grown_source(self, count, new, by_paths, wants_two):
        """Append new rows from a source of all, with those that an earlier generation lacks."""
        self.append(count, new, by_paths, wants_two, only_new=False)

    @in_turn(count=st.integers(1, 6), new=st.booleans(), by_paths=st.booleans(), wants_two=st.booleans())
    def append_source_of_new(self, count, new, by_paths, wants_two):
        """Append new rows from a source that has no others."""
        self.append(count, new, by_paths, wants_two, only_new=not self.of.keys_follow_rows)

    def append(self, count: int, of_new_class: bool, by_paths: bool, wants_two: bool, only_new: bool) -> None:
        """Add rows to the source, and append them."""
        new_rows = self.new_rows(count)
        if of_new_class:
            # beside others, since a single folder of photos may be anything
            new_rows += [Row(len(self.rows) + count, f"bee-{len(self.rows)}")]
        self.rows += new_rows
        rows = new_rows if only_new else self.rows
        model = self.model
        known = {*model.keys, *model.removed}
        new = [row for row in rows if self.of.key(row) not in known]
        new_classes = sorted({row.label for row in new} - {*model.classes})
        source = self.of.paths(rows) if by_paths else self.of.source(rows)
        if not model.has_one_source:
            self.refused(lambda place, **on: prep.append(source, place.path(self.name), **on))
            return
        added = self.examples(new, self.manifest["split_cuts"])
        shards = 2 if wants_two and min(map(len, added.values())) > 1 else None

        def call(place, **on):
            return prep.append(
                source,
                place.path(self.name),
                shards=shards,
                max_rejected=1,
                new_classes=bool(new_classes),
                **on,
            )

        if new_classes:
            self.refused(lambda place, **on: prep.append(source, place.path(self.name), **on))
        old = self.manifest["splits"]
        manifest = self.call(call).to_json()
        for name, split in old.items():
            assert manifest["splits"][name]["shards"][: len(split["shards"])] == split["shards"]
        splits = {name: {**split, **added.get(name, {})} for name, split in model.splits.items()}
        made = "append" if model.made in ("build", "append") else "derive"
        classes = (*model.classes, *new_classes)

        def fits(before, now, name):
            own = now[len(before) :]
            return sum(own) == len(added.get(name, ())) and (not own or is_balanced(own))

        rejected = model.rejected | self.of.rejected(rows) - model.removed
        model = replace(model, splits=splits, classes=classes, rejected=rejected, made=made, build=None)
        self.committed(model, fits)
        self.unchanged(call)

    @in_turn(data=st.data(), counts=st.lists(st.integers(1, 4), min_size=1, max_size=2))
    def remove(self, data, counts):
        """Remove examples, and rejected inputs, in one call or in two."""
        for count in counts:
            keys = sorted({*self.model.keys, *self.model.rejected})
            self.remove_keys({*data.draw(st.permutations(keys))[:count]})

    def remove_keys(self, keys: set[str]) -> None:
        """Remove what has these keys, unless a split would have no examples."""
        model = self.model
        splits = {
            name: {key: example for key, example in split.items() if key not in keys}
            for name, split in model.splits.items()
        }

        def call(place, **on):
            return prep.remove(place.path(self.name), sorted(keys), **on)

        self.refused(lambda place, **on: prep.remove(place.path(self.name), ["nobody", *keys], **on))
        if not all(splits.values()):
            self.refused(call)
            return
        self.call(call)

        def fits(before, now, name):
            if is_balanced(before):
                return is_balanced(now) and len(now) == min(len(before), len(splits[name]))
            return len(now) <= len(before)

        self.committed(
            replace(
                model,
                splits=splits,
                rejected=model.rejected - keys,
                removed=model.removed | keys,
                made="derive",
                build=None,
            ),
            fits,
        )
        self.unchanged(call)

    @in_turn(data=st.data(), count=st.integers(1, 5), has_new=st.booleans())
    def relabel(self, data, count, has_new):
        """Give examples other classes; each stays where it is."""
        model = self.model
        keys = data.draw(st.permutations(model.keys))[:count]
        # which a sorted list of all classes would have first
        new_class = f"ant-{len(self.models)}"
        label = new_class if has_new else data.draw(st.sampled_from(model.classes))
        splits = {
            name: {
                key: {**example, "label": label} if key in keys else example for key, example in split.items()
            }
            for name, split in model.splits.items()
        }

        def call(place, **on):
            labels = dict.fromkeys(sorted(keys), label)
            return prep.relabel(place.path(self.name), labels, new_classes=has_new, **on)

        if has_new:
            self.refused(lambda place, **on: prep.relabel(place.path(self.name), {min(keys): label}, **on))
        if splits == model.splits:
            self.unchanged(call)
            return
        before = self.order()
        self.call(call)
        assert self.order() == before
        classes = (*model.classes, *([new_class] if has_new else []))
        model = replace(model, splits=splits, classes=classes, made="derive", build=None)
        self.committed(model, lambda before, now, _: now == before)
        self.unchanged(call)

    def order(self) -> dict[str, list[bytes]]:
        """Return the keys of each split in order."""
        examples = read_dataset(self.first.files(self.name))
        return {name: [each["key"].item() for each in split] for name, split in examples.items()}

    @in_turn(
        shards=st.integers(1, 3), compression=st.sampled_from([None, "none", "gzip"]), moves=st.booleans()
    )
    def reshard(self, shards, compression, moves):
        """Write all examples to new shards, here or in another folder."""
        model = self.model
        shards = min(shards, *map(len, model.splits.values()))
        options = prep.ShardOptions(compression=compression)
        old, new = self.name, self.new_name() if moves else self.name

        def call(place, **on):
            return prep.reshard(
                place.path(old), place.path(new), shards=shards, overwrite=not moves, options=options, **on
            )

        if not moves:
            self.call(call)
        else:
            self.derive(call, [old], new)
        model = replace(model, made="derive", build=None)
        self.committed(model, lambda _, now, __: len(now) == shards and is_balanced(now))
        if not moves:
            self.unchanged(call)

    def derive(self, call: Callable[..., object], old: list[str], new: str) -> None:
        """Make a dataset from others, twice, and remove these, which it must not have changed."""
        before = [[place.files(name) for name in old] for place in self.all_places]
        self.call(call)
        assert [[place.files(name) for name in old] for place in self.all_places] == before
        self.name, self.models = new, {}
        self.unchanged(call)
        for place in self.all_places:
            for name in old:
                place.remove(name)
        self.add_foreign_files()

    @in_turn(count=st.integers(9, 12), shards=st.one_of(st.none(), st.integers(1, 3)))
    def merge(self, count, shards):
        """Merge the dataset with another one, whose keys differ."""
        model, compression = self.model, self.manifest["compression"]
        start = 0 if self.of.keys_follow_rows else 1600 * (1 + self.num_names)
        rows = [Row(number, model.classes[number % 2]) for number in range(start, start + count)]
        source, options = self.of.source(rows, [*model.classes]), self.of.options(compression)
        others = self.call(
            lambda place, **on: prep.build(source, place.path("other"), shards=2, options=options, **on)
        ).to_json()
        other = self.examples(rows, others["split_cuts"])
        old, new = self.name, self.new_name()
        splits = {name: {**split, **other.get(name, {})} for name, split in model.splits.items()}
        sources: Callable = lambda place: [place.path(old), place.path("other")]  # noqa: E731
        if self.of.keys_follow_rows:
            # the same keys, as numbers of rows are
            with pytest.raises(InputError):
                prep.merge(sources(self.first), self.first.path(new))
            for place in self.all_places:
                place.remove("other")
            return
        if shards:
            shards = min(shards, *map(len, splits.values()))
        sizes = {
            name: [shard["num_examples"] for shard in split["shards"]]
            for name, split in others["splits"].items()
        }
        self.derive(
            lambda place, **on: prep.merge(sources(place), place.path(new), shards=shards, **on),
            [old, "other"],
            new,
        )

        def fits(_, now, name):
            if shards:
                return len(now) == shards and is_balanced(now)
            return len(now) == len(model.sizes[name]) + len(sizes.get(name, [])) and is_balanced(now)

        self.committed(
            replace(
                model,
                splits=splits,
                rejected=model.rejected | self.of.rejected(rows),
                made="derive",
                build=None,
                has_one_source=not self.of.ratios,
            ),
            fits,
        )

    @precondition(lambda self: len(self.models) > 1)
    @in_turn(data=st.data())
    def restore(self, data):
        """Make an earlier generation the dataset again."""
        self.restored(data.draw(st.sampled_from(sorted({*self.models} - {self.current}))))

    def restored(self, folder: str) -> None:
        """Restore a generation, with its manifest byte for byte."""

        def call(place, **_):
            return prep.restore(place.path(self.name), folder)

        self.call(call)
        assert self.first.files(self.name)["dataset.json"] == self.texts[folder]
        self.current = folder
        self.unchanged(call)

    @precondition(lambda self: len(self.models) > 1)
    @in_turn()
    def prune(self):
        """Remove the earlier generations."""
        self.call(lambda place: prep.prune(place.path(self.name)), writes=False)
        for folder in {*self.models} - {self.current}:
            self.refused(lambda place, folder=folder, **_: prep.restore(place.path(self.name), folder))
        self.models = {self.current: self.model}
        found = self.first.files(self.name)
        paths = {shard["path"] for split in self.manifest["splits"].values() for shard in split["shards"]}
        assert {path for path in found if ".tfrecord-" in path.rpartition("/")[2]} - {*FOREIGN} == {
            *paths,
            *(companion(path, suffix) for path in paths for suffix in ("idx", "labels", "keys")),
        }
        is_first = "-" not in self.current
        if is_first and self.model.build and self.model.build[3] == len(self.rows):
            # as if nothing else had been
            name, self.name = self.name, "once"
            self.call(self.build_call(*self.model.build))
            once, self.name = self.first.files("once"), name
            assert {path: found[path] for path in found if path not in FOREIGN} == once
            for place in self.all_places:
                place.remove("once")

    @in_turn()
    def move(self):
        """Rename the folder of the dataset."""
        new = self.new_name()
        for place in self.all_places:
            place.move(self.name, new)
        self.name = new
        self.add_foreign_files()

    @in_turn(data=st.data(), how=st.sampled_from(DAMAGE), at=st.floats(0, 1), number=st.integers(1, 2))
    def damage_shards(self, data, how, at, number):
        """Damage shards, and repair them."""
        self.damage_and_repair("shard", data, how, at, number)

    @in_turn(data=st.data(), how=st.sampled_from(DAMAGE), at=st.floats(0, 1), number=st.integers(1, 2))
    def damage_others(self, data, how, at, number):
        """Damage other files, and repair them."""
        kinds = ["index", "labels", "keys", "view"]
        kinds += [*(["rejects"] if self.model.rejected else []), *(["removed"] if self.model.removed else [])]
        self.damage_and_repair(data.draw(st.sampled_from(kinds)), data, how, at, number)

    def damage_and_repair(self, kind: str, data: st.DataObject, how: str, at: float, number: int) -> None:
        """Damage files of a kind, which ``verify`` names, and repair them."""
        manifest = self.manifest
        shards = [shard for split in manifest["splits"].values() for shard in split["shards"]]
        paths = {
            "shard": [shard["path"] for shard in shards],
            "index": [companion(shard["path"], "idx") for shard in shards],
            "labels": [companion(shard["path"], "labels") for shard in shards],
            "keys": [companion(shard["path"], "keys") for shard in shards],
            "view": sorted(manifest.get("views", {})),
            "rejects": [rejects_path(manifest)],
            "removed": [f"{manifest['folder']}/removed.txt"],
        }[kind]
        paths = data.draw(st.permutations(paths))[:number]
        before = [place.files(self.name) for place in self.all_places]
        for place in self.all_places:
            for path in paths:
                place.write(self.name, path, damaged(before[0][path], how, at))
            for deep in (False, True):
                report = prep.verify(place.path(self.name), deep=deep)
                assert not report
                assert {*paths} <= {problem.place for problem in report.problems}
        if kind in ("shard", "index", "labels", "keys"):
            # nothing is made of damaged records; those in gzip are sound if only its header or end is damaged
            for place in self.all_places:
                try:
                    prep.reshard(place.path(self.name), place.path("from"), **place.options)
                except TfshardsError:
                    assert "dataset.json" not in place.files("from")
                else:
                    assert (kind, manifest["compression"]) == ("shard", "gzip")
                    assert self.read(place.files("from")) == self.model.splits
                if place.files("from"):
                    place.remove("from")
        way = data.draw(st.sampled_from(["repair", "build"]))
        for place, files in zip(self.all_places, before, strict=True):
            others = {path: place.identity(self.name, path) for path in {*files} - {*paths}}
            self.repair(place, kind, way, {path: files[path] for path in paths})
            assert place.files(self.name) == files
            # a shard is written with its companions
            if way != "build" and kind != "shard":
                assert {path: place.identity(self.name, path) for path in others} == others

    def repair(self, place: Place, kind: str, way: str, copies: Mapping[str, bytes]) -> None:
        """Repair files of a kind, by a verb or, if none can rebuild them, from a user's copies."""
        model, follows = self.model, kind not in ("shard", "rejects", "removed")
        is_built = model.build and model.build[3] == len(self.rows) and kind not in ("rejects", "removed")
        if is_built and (way == "build" or not follows):
            self.build_call(*model.build, overwrite=True)(place, **place.options)
        elif follows:
            report = prep.verify(place.path(self.name), repair=True)
            assert report, report.left
        else:
            for path, content in copies.items():
                place.write(self.name, path, content)

    # The invariants

    @invariant()
    def the_dataset_is_as_expected(self):
        if not self.models:
            return
        files = self.first.files(self.name)
        self.check_examples(files)
        for place, identities in zip(self.all_places, self.identities, strict=True):
            assert place.files(self.name) == files
            report = prep.verify(place.path(self.name), deep=True)
            assert report, report.problems
            found = prep.generations(place.path(self.name))
            assert found[0].folder == self.current
            assert {each.folder: (each.num_examples, each.num_damaged) for each in found} == {
                folder: (len(model.keys), 0) for folder, model in self.models.items()
            }
            # files of the user
            assert {path: files.get(path) for path in FOREIGN} == FOREIGN
            assert {path: place.identity(self.name, path) for path in FOREIGN} == identities
            assert place.files("beside") == BESIDE
        self.is_sound = True

    def read(self, files: Mapping[str, bytes]) -> dict[str, dict[str, object]]:
        """Return the examples that the independent reader finds, by split and key."""
        names = json.loads(files["dataset.json"])["schema"]["class_names"]
        found: dict[str, dict[str, object]] = {}
        for split, examples in read_dataset(files).items():
            by_key = {each.pop("key").item().decode(): each for each in examples}
            assert len(by_key) == len(examples)
            found[split] = {key: plain(each, names) for key, each in by_key.items()}
        return found

    def check_examples(self, files: Mapping[str, bytes]) -> None:
        """Compare what the independent reader finds with the model."""
        manifest, model, found = json.loads(files["dataset.json"]), self.model, self.read(files)
        names = manifest["schema"]["class_names"]
        assert found == model.splits
        assert tuple(names) == model.classes
        assert {*read_rejects(files, manifest)} == model.rejected
        for name, split in manifest["splits"].items():
            assert [shard["num_examples"] for shard in split["shards"]] == model.sizes[name]
            counts = dict.fromkeys(names, 0)
            for example in found[name].values():
                counts[example["label"]] += 1
            assert split["label_counts"] == counts

    def teardown(self):
        """Restore each generation."""
        with self.stack:
            for folder in sorted({*self.models} - {self.current}) if self.is_sound else ():
                self.restored(folder)
                self.check_examples(self.first.files(self.name))


def damaged(content: bytes, how: str, at: float) -> bytes | None:
    """Return a file with a flipped bit, without its end, or None for none."""
    if how == "delete":
        return None
    where = min(int(at * len(content)), len(content) - 1)
    if how == "cut":
        return content[:where]
    return content[:where] + bytes([content[where] ^ 1]) + content[where + 1 :]


def plain(example: Mapping[str, np.ndarray], names: list[str]) -> dict[str, object]:
    """Return an example as plain values, with the name of its class."""
    return {name: names[int(value)] if name == "label" else value.tolist() for name, value in example.items()}
