"""Faults in verbs that tests/verbs has to find: ``(name, file, old text, new text, test)``.

The old text occurs once in its file, and the fault is that text replaced with the new one.
"""

VERBS = "tests/verbs/test_verbs.py::test_a_dataset_holds_what_its_verbs_have_made"

FAULTS = [
    (
        "relabel changes the example after the named one",
        "prep/deriving/edit.py",
        "labels[examples] = np.array(",
        "labels[(examples + 1) % len(old)] = np.array(",
        VERBS,
    ),
    (
        "relabel numbers new classes in the order of all names",
        "prep/deriving/edit.py",
        "enumerate((*names, *unknown))",
        "enumerate(sorted((*names, *unknown)))",
        VERBS,
    ),
    (
        "relabel leaves the file of labels as it was",
        "prep/deriving/stored.py",
        "map(old.labels.get, records.tolist(), old_labels) if old.labels",
        "old_labels if old.labels",
        VERBS,
    ),
    (
        "a second remove forgets the keys of the first one",
        "prep/deriving/edit.py",
        "left, before | {",
        "left, frozenset() | {",
        "tests/prep/test_edits.py::test_nothing_of_the_removed_examples_is_on_disk_after_prune",
    ),
    (
        "remove counts the labels of removed examples",
        "prep/deriving/edit.py",
        "label_counts(labels[start:end][is_kept]",
        "label_counts(labels[start:end]",
        VERBS,
    ),
    (
        "append loses the last new row",
        "prep/deriving/append.py",
        "np.flatnonzero(is_new).tolist(), origin",
        "np.flatnonzero(is_new)[:-1].tolist(), origin",
        VERBS,
    ),
    (
        "append takes removed examples again",
        "prep/deriving/append.py",
        " if removed_line(listing.keys[number]) not in removed]",
        "]",
        VERBS,
    ),
    (
        "append forgets earlier rejects",
        "prep/deriving/append.py",
        "all_rejects = [*self.new.rejects, *draft.rejects]",
        "all_rejects = draft.rejects",
        VERBS,
    ),
    (
        "the splits of merged datasets hold the shards of the first one",
        "prep/deriving/reshard.py",
        "for index, of in held if of for shard in of.shards]",
        "for index, of in held[:1] if of for shard in of.shards]",
        VERBS,
    ),
    (
        "restore takes another generation",
        "prep/building/generations.py",
        "manifest = state.generations[complete[folder]]",
        "manifest = state.generations[complete[min(complete)]]",
        VERBS,
    ),
    (
        "prune deletes a shard of the dataset that an earlier generation names",
        "prep/building/generations.py",
        "needed = {*state.manifest.data_paths} if state.manifest",
        "needed = {*state.manifest.data_paths[9:]} if state.manifest",
        VERBS,
    ),
    (
        "a commit removes the generation that it replaces",
        "prep/building/commit.py",
        "        if old is not None:\n            report_line(",
        "        if old is not None:\n            BuildFolder(folder, old.folder).remove()\n"
        "            report_line(",
        VERBS,
    ),
    (
        "shards of a build differ by more than one",
        "prep/planning/balance.py",
        "return np.array_split(examples[permutation(len(examples), seed, split)], num_shards)",
        "cuts = [2 * number + 2 for number in range(num_shards - 1)]\n"
        "    return np.split(examples[permutation(len(examples), seed, split)], cuts)",
        VERBS,
    ),
    (
        "new shards of a dataset differ by two",
        "prep/deriving/layout.py",
        "share + (index < extra) for index",
        "share + extra * (index == 0) for index",
        VERBS,
    ),
    (
        "shards differ by two after a remove",
        "prep/planning/balance.py",
        "share + (rank < extra)",
        "share + extra * (rank == 0)",
        VERBS,
    ),
    (
        "a build writes no labels file",
        "prep/writing/shard.py",
        "for path, content in companions.items()})",
        "for path, content in [*companions.items()][:1]})",
        VERBS,
    ),
    (
        "the index counts a byte too few for each record",
        "prep/records/shard_file.py",
        "[index.to_text()",
        "[RecordIndex(self.lengths + FRAME_OVERHEAD - 1).to_text()",
        VERBS,
    ),
    (
        "the labels of copied records are those of the records before them",
        "prep/deriving/stored.py",
        "labels[records].tolist()",
        "labels[np.maximum(records - 1, 0)].tolist()",
        VERBS,
    ),
    (
        "verify accepts a shard with other bytes",
        "prep/verification/verify.py",
        "elif digest != shard.digest:",
        'elif digest == "":',
        VERBS,
    ),
    (
        "verify accepts any index",
        "prep/verification/verify.py",
        "of_index + of_labels + of_keys)",
        "of_labels + of_keys)",
        "tests/surface/test_damages.py::test_every_damage_is_named[no index]",
    ),
    (
        "verify accepts any rejects file",
        "schemas/manifest.py",
        "named = {self.rejects_path: self.rejects_digest, self.removed_path: self.removed_digest}",
        "named = {self.removed_path: self.removed_digest}",
        VERBS,
    ),
    (
        "verify looks at the first shard only",
        "prep/verification/verify.py",
        "in_threads(look, manifest.shards, meter.add)",
        "in_threads(look, manifest.shards[:1], meter.add)",
        VERBS,
    ),
    (
        "repair rebuilds no file of labels",
        "prep/verification/repair.py",
        "yield from _companions(folder, shard, manifest).items()",
        "yield from [*_companions(folder, shard, manifest).items()][:1]",
        VERBS,
    ),
    (
        "a build takes a damaged dataset for up to date",
        "prep/building/commit.py",
        "        if not damage or _is_repaired(job, build, manifest, damage):",
        "        if True or _is_repaired(job, build, manifest, damage):",
        VERBS,
    ),
    (
        "a reshard in place forgets the rejects",
        "prep/deriving/derive.py",
        "Draft(manifest, finished, self.rejects, self.removed)",
        'Draft(manifest, finished, () if self.outline.options["source"] == "reshard" '
        "else self.rejects, self.removed)",
        VERBS,
    ),
]
