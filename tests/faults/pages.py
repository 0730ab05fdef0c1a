"""Faults that the documentation shows: a command that it prints does something else than it states."""

RUN = "tests/surface/test_pages.py::test_the_code_of_a_section_runs_and_has_its_result"

FAULTS = [
    (
        "show prints one example too many",
        "prep/verification/show.py",
        "max(0, count - start)",
        "max(0, count - start + 1)",
        f"{RUN}[how-to: How do I look at a dataset?]",
    ),
    (
        "which and when read the batches of one worker",
        "loader/saved_run.py",
        '"batch_size": size // workers,',
        '"batch_size": size,',
        "tests/loader/test_receipts.py::test_the_verbs_print_receipts_of_the_run_of_a_position",
    ),
    (
        "merged datasets keep the names of their splits",
        "prep/deriving/merge.py",
        "open_origin(root, split) for root, split in",
        'open_origin(root, "") for root, split in',
        f"{RUN}[how-to: How do I make one dataset of datasets that are its splits?]",
    ),
    (
        "keys to remove name examples whose label may be right",
        "prep/auditing/audit.py",
        'found if finding.kind == "size" else found - of_conflicts',
        "found",
        f"{RUN}[how-to: How do I remove examples?]",
    ),
    (
        "only the first split list counts",
        "prep/sources/split_lists.py",
        "names = [name for name in dict.fromkeys(self.split_of.values()) if (splits == name).any()]",
        "names = [name for name in dict.fromkeys(self.split_of.values()) if (splits == name).any()][:1]",
        f"{RUN}[how-to: How do I build from lists of files?]",
    ),
]
