"""Faults of prep outside of the other tables: processes and workers, permissions, mixtures, missing keys."""

MERGE = "tests/prep/test_merge.py"
KEYLESS = "tests/prep/test_adopt.py::test_verbs_accept_an_adopted_dataset_without_keys"

FAULTS = [
    (
        "prune takes all generations of a dataset whose manifest is lost",
        "prep/building/generations.py",
        "        if state.manifest is None and complete:\n",
        "        if False:\n",
        "tests/prep/test_generations.py::"
        "test_prune_removes_no_generation_if_the_manifest_of_the_dataset_is_lost",
    ),
    (
        "Ctrl-C in a terminal ends what is to be ended by the main process",
        "prep/engines/local.py",
        "                process.terminate()\n",
        "                pass\n",
        "tests/prep/test_engines.py::test_ctrl_c_ends_all_calls[local]",
    ),
    (
        "a link into a folder that cannot be read counts as broken",
        "prep/sources/tree.py",
        "errno.ENOTDIR, errno.ELOOP)",
        "errno.ENOTDIR, errno.ELOOP, errno.EACCES)",
        "tests/durability/test_limits.py::test_an_input_without_read_permission_is_reported[far-slow/link]",
    ),
    (
        "workers of a reshard do not look for the dataset that they read",
        "prep/deriving/reshard.py",
        "        locations=tuple(origin.root for origin in origins),\n",
        "",
        "tests/prep/test_engines.py::test_a_worker_that_does_not_see_the_dataset_to_reshard_is_refused",
    ),
    (
        "a build writes over shards that a later generation names",
        "prep/building/state.py",
        "return build not in self.generations and build.name not in self._named",
        "return build not in self.generations",
        "tests/prep/test_generations.py::test_what_prune_has_left_of_a_build_is_never_written_again",
    ),
    (
        "merge takes a damaged dataset for up to date",
        "prep/deriving/reshard.py",
        'made |= {"as_splits": [*names]} if names else {}\n',
        'made |= {"as_splits": [*names]} if names else {}\n    overwrite = False\n',
        f"{MERGE}::test_a_damaged_dataset_is_merged_again_with_overwrite",
    ),
    (
        "small datasets are used up before the last shard of a mixture",
        "prep/deriving/layout.py",
        "(np.arange(count) + 0.5) / count for",
        "(np.arange(count) + 0.5) / (count + 2) for",
        f"{MERGE}::test_each_new_shard_holds_examples_of_each_dataset_in_proportion",
    ),
    (
        "examples without keys are edited",
        "prep/deriving/edit.py",
        "        origin.require_keys()\n",
        "",
        KEYLESS,
    ),
    (
        "examples without keys are appended to",
        "prep/deriving/append.py",
        "    origin.require_keys()\n",
        "",
        KEYLESS,
    ),
]
