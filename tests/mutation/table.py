"""Which tests run over the mutants of which module, and the mutants that no test can find."""

from __future__ import annotations

# Imported once, before a process is forked for each mutant; none of them imports tfshards.
IMPORTS = ("pytest", "hypothesis", "numpy", "PIL.Image", "pyarrow.parquet", "google_crc32c", "tensorflow")

_ORDER = ("tests/loader/test_assign.py", "tests/loader/test_order.py", "tests/loader/test_positions.py")

TESTS: dict[str, tuple[str, ...]] = {
    "prep/planning/shard_counts.py": ("tests/prep/test_shard_counts.py",),
    "prep/records/frames.py": ("tests/prep/test_tfrecord.py",),
    "schemas/splitmix.py": ("tests/schemas/test_digests.py",),
    "schemas/index.py": ("tests/schemas/test_index.py",),
    "schemas/labels.py": ("tests/schemas/test_labels.py",),
    "prep/planning/balance.py": ("tests/prep/test_plan.py",),
    "prep/planning/splits.py": ("tests/prep/test_splits.py",),
    "loader/order/random_bits.py": _ORDER,
    "loader/order/epoch.py": _ORDER,
    "loader/order/assignment.py": _ORDER,
    "prep/records/example.py": ("tests/prep/test_example.py",),
    "prep/planning/group_splits.py": ("tests/prep/test_group_splits.py",),
}

_CACHE = "the size of a cache changes no value"
_ALWAYS = "the pattern is a repetition, which matches any text"
_INDEX = "schemas/index.py"
_SOUND = "sound = match.end() if match else 0"
_LINE = 'line, found = text.count("\\n", 0, sound) + 1, text[sound:].split("\\n", 1)[0][:40]'
_ROWS = 'rows = np.fromstring(text, dtype=np.int64, sep=" ").reshape(-1, 2)'
_STRICT = "rows = zip(self.offsets.tolist(), self.lengths.tolist(), strict=True)"

# (module, line before, line after): the reason
EQUIVALENT: dict[tuple[str, str, str], str] = {
    ("prep/records/frames.py", "@lru_cache(maxsize=1024)", "@lru_cache(maxsize= 1025)"): _CACHE,
    ("prep/records/frames.py", "@lru_cache(maxsize=1024)", "@lru_cache(maxsize= 1023)"): _CACHE,
    (
        "schemas/labels.py",
        "return np.frombuffer(data, dtype=_DTYPE).astype(np.int64, copy=False)",
        "return np.frombuffer(data, dtype=_DTYPE).astype(np.int64, copy=True)",
    ): "a copy has the same values",
    (_INDEX, _SOUND, "sound = match.end() if match else 1"): _ALWAYS,
    (_INDEX, _SOUND, "sound = match.end() if match else -1"): _ALWAYS,
    (
        _INDEX,
        _LINE,
        _LINE.replace('"\\n", 0, sound', '"\\n", 1, sound'),
    ): "no sound text starts with a newline",
    (_INDEX, _LINE, _LINE.replace('"\\n", 1)[0]', '"\\n", 2)[0]')): "only the first part is used",
    (_INDEX, _ROWS, _ROWS.replace("-1", "- 2")): "NumPy infers the length from any negative number",
    (_INDEX, _STRICT, _STRICT.replace("True", "False")): "offsets are computed from lengths",
}
