"""Faults of what judges files that nobody may trust."""

INDEX, NAMES = "schemas/index.py", "schemas/names.py"
REPAIR, VERIFY = "prep/verification/repair.py", "prep/verification/verify.py"
REPAIRS = "tests/prep/test_repair.py"
DAMAGES, MANIFEST, RECORDS = (
    "tests/surface/test_damages.py",
    "tests/schemas/test_manifest.py",
    "tests/prep/test_verify.py",
)
NAMED = f"{DAMAGES}::test_every_damage_is_named"

FAULTS = [
    (
        "verify compares no last bytes",
        VERIFY,
        "elif last_bytes != shard.last_bytes:",
        "elif False:",
        NAMED,
    ),
    (
        "verify compares no digest of examples",
        VERIFY,
        "elif records.digest != shard.examples_digest:",
        "elif False:",
        NAMED,
    ),
    (
        "verify compares no key of a record with the file of keys",
        VERIFY,
        "(manifest.schema.key, shard.keys_path, companions.keys),",
        "",
        NAMED,
    ),
    (
        "rejected inputs and views are not compared",
        VERIFY,
        "{**manifest.other_digests, **copy_digest(folder, manifest)}",
        "copy_digest(folder, manifest)",
        NAMED,
    ),
    (
        "the manifest in the folder of the build is not compared",
        VERIFY,
        "{**manifest.other_digests, **copy_digest(folder, manifest)}",
        "manifest.other_digests",
        NAMED,
    ),
    (
        "a damaged header hides the records after it",
        "prep/records/frames.py",
        "not in (None, length):",
        "!= length:",
        f"{RECORDS}::test_a_damaged_frame_hides_no_other_one",
    ),
    (
        "a file is replaced by one without its digest",
        REPAIR,
        "path in damaged and bytes_digest(data) == digests.get(path)",
        "path in damaged",
        f"{REPAIRS}::test_a_file_whose_digest_is_not_that_of_what_follows_stays",
    ),
    (
        "a repair writes into a folder of somebody else",
        "prep/building/generations.py",
        "if target.parent.is_symlink() or not is_owned(dataset / plain_folder(path)):",
        "if False:",
        f"{REPAIRS}::test_nothing_is_written_into_a_folder_that_tfshards_did_not_make",
    ),
    (
        "what restores the newest generation is not named",
        REPAIR,
        "if build.name == manifest.folder:",
        "if True:",
        f"{REPAIRS}::test_shards_of_an_earlier_build_are_repaired_by_it_and_the_newest_is_restored",
    ),
    (
        "images are not decoded",
        VERIFY,
        "in images if decode else ():",
        "in ():",
        f"{RECORDS}::test_pixels_are_decoded_and_compared_with_the_schema",
    ),
    (
        "an index may have gaps",
        INDEX,
        "(rows[:, 0] != index.offsets) | (rows[:, 1] < FRAME_OVERHEAD)",
        "rows[:, 1] < FRAME_OVERHEAD",
        f"{DAMAGES}::test_a_hostile_index_is_refused_whatever_the_manifest_states",
    ),
    (
        "a path may leave the dataset",
        NAMES,
        'if any(part == "" or part.startswith(".") for part in parts):',
        'if any(part == "" for part in parts):',
        f"{MANIFEST}::test_contradictory_fields_are_reported",
    ),
]
