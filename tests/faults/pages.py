"""Faults that the documentation shows: a command that it prints does something else than it states."""

RUN = "tests/surface/test_pages.py::test_the_code_of_a_section_runs_and_has_its_result"

FAULTS = [
    (
        "show prints one example too few",
        "prep/verification/show.py",
        "return islice(chain.from_iterable(found), count)",
        "return islice(chain.from_iterable(found), max(1, count - 1))",
        f"{RUN}[maintain: How do I look at a dataset?]",
    ),
    (
        "which and when read the batches of one worker",
        "loader/receipts.py",
        "batch_size=size // workers,",
        "batch_size=size,",
        "tests/loader/test_verbs.py::test_the_verbs_print_receipts_of_the_run_of_a_position",
    ),
    (
        "merged datasets keep the names of their splits",
        "prep/deriving/reshard.py",
        "splits={name: next(",
        'splits={"train": next(',
        f"{RUN}[maintain: How do I make one dataset of datasets that are its splits?]",
    ),
    (
        "keys to remove name examples whose label may be right",
        "prep/auditing/audit.py",
        'found if finding.kind == "size" else found - contested',
        "found",
        f"{RUN}[maintain: How do I remove examples?]",
    ),
    (
        "only the first split list counts",
        "prep/sources/folder.py",
        "for split, number in order.items()}",
        "for split, number in [*order.items()][:1]}",
        "tests/test_datasets.py::test_a_section_builds_exactly_what_its_layout_holds[Food-101]",
    ),
]
