"""A command that ends at any step leaves the old dataset or the new one, and the same command completes it.

Every step of every command is tried in ``make nightly``, evenly chosen ones in ``make test``.
"""

import errno
import os
from collections import Counter
from collections.abc import Iterator

import obstore.store
import pytest

from tests.campaigns import SCALE, cases
from tests.crash.commands import COMMANDS, POINTER, run
from tests.crash.places import Bucket, Case, Folder, chosen, examples, judge, undisturbed
from tests.crash.steps import Crash, Moment, on_disk
from tests.storage.conftest import lead_to, new_bucket

pytestmark = pytest.mark.campaign

NUM_MOMENTS = cases(14, nightly=1000)
NUM_OTHERS = cases(5, nightly=1000)
NAMES = [*COMMANDS]


@pytest.fixture(scope="module")
def case_of(inputs, tmp_path_factory):
    """Return a function that returns a row of the table with what it leaves undisturbed."""
    made: dict[str, Case] = {}

    def case(name: str) -> Case:
        if name not in made:
            folder = tmp_path_factory.mktemp("out") / "out"
            made[name] = undisturbed(COMMANDS[name], Folder(folder), inputs)
        return made[name]

    return case


def ended(case: Case, moment: Moment) -> str:
    """Run the command until it ends at a moment, and return which dataset is left."""
    case.place.start(case.old)
    with case.place.steps(moment), pytest.raises(Crash):
        case.run(case.command.line)
    return judge(case.command, case.place.files(), case.old, case.new)


@pytest.mark.parametrize("name", NAMES)
def test_a_command_that_ends_at_any_step_is_completed_by_the_same_command(name, case_of):
    case, tried = case_of(name), 0
    before = Folder(case.inputs).files()
    for moment in chosen(case, NUM_MOMENTS, NAMES.index(name)):
        try:
            ended(case, moment)
            finished = case.place.identities()
            case.run(case.command.line)
            assert case.place.files() == case.new
            check_kept(case, finished)
        except (AssertionError, ValueError) as error:
            raise AssertionError(f"{name}, ended before {moment}: {error}") from error
        tried += 1
    assert Folder(case.inputs).files() == before
    print(f"\n{name}: {tried} of {len(case.moments)} moments")
    assert tried == len(case.moments) or not SCALE
    assert tried >= 8


def check_kept(case: Case, finished: dict[bytes, set[int]]) -> None:
    """Assert that at most one shard, the last one, was written again although it was complete."""
    now = case.place.identities()
    written = {*case.new.values()} - {*case.old.values()}
    shards = {
        data for path, data in case.new.items() if "-of-" in path.rpartition(".")[2] and data in written
    }
    again = [data for data in shards if data in finished and not finished[data] & now[data]]
    assert len(again) <= 1, f"{len(again)} finished shards were written again"


@pytest.mark.parametrize("name", NAMES)
def test_a_command_whose_step_fails_reports_it_or_completes(name, case_of):
    case, found = case_of(name), Counter[int]()
    for moment in chosen(case, NUM_OTHERS, NAMES.index(name) + 2):
        if moment.torn:
            continue
        case.place.start(case.old)
        with on_disk(case.place.out, moment, OSError(errno.EIO, os.strerror(errno.EIO))):
            status, printed = run(case.words(case.command.line))
        found[status] += 1
        try:
            files = case.place.files()
            judge(case.command, files, case.old, case.new)
            assert (status, printed.count("Traceback")) in ((0, 0), (1, 0)), printed
            if status == 0:
                # what could not be removed may be left
                assert {path: files.get(path) for path in case.new} == case.new
            case.run(case.command.line)
            files = case.place.files()
            assert {path: files.get(path) for path in case.new} == case.new
        except (AssertionError, ValueError) as error:
            raise AssertionError(f"{name}, failed at {moment}: {error}") from error
    print(f"\n{name}: exit status {dict(found)}")
    assert found[1]


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.then])
def test_another_command_after_one_that_ended_takes_nothing_of_it(name, case_of):
    case = case_of(name)
    expected = case.thens
    for moment in chosen(case, NUM_OTHERS, NAMES.index(name) + 1):
        try:
            left = ended(case, moment)
            assert case.then() == expected[left]
        except (AssertionError, ValueError) as error:
            raise AssertionError(f"{name}, ended before {moment}: {error}") from error


# Buckets: a command that ends between two requests


NUM_REQUESTS = cases(2, nightly=1000)


REMOTE = [name for name, command in COMMANDS.items() if command.is_remote]
# in make test, one of each way to write
OFTEN = ["build images", "build other options", "build damaged again", "restore", "prune"]


@pytest.fixture(scope="module")
def bucket(running_servers) -> Iterator[Bucket]:
    server = running_servers.get("moto")
    with pytest.MonkeyPatch.context() as patch:
        lead_to(server, patch)
        made = new_bucket(server)
        yield Bucket(made.url)


@pytest.mark.parametrize("name", REMOTE if SCALE else OFTEN)
def test_a_command_that_ends_at_any_request_is_completed_by_the_same_command(name, bucket, inputs, tmp_path):
    case, tried = undisturbed(COMMANDS[name], bucket, inputs, Folder(tmp_path / "out")), 0
    for moment in chosen(case, NUM_REQUESTS, REMOTE.index(name)):
        try:
            bucket.start(case.old)
            with bucket.steps(moment), pytest.raises(Crash):
                case.run(case.command.line)
            judge(case.command, bucket.files(), case.old, case.new)
            case.run(case.command.line)
            assert bucket.files() == case.new
        except (AssertionError, ValueError) as error:
            raise AssertionError(f"{name}, ended before {moment}: {error}") from error
        tried += 1
    print(f"\n{name}: {tried} of {len(case.moments)} moments")
    # restore makes a single request that changes something
    assert tried >= min(2, len(case.moments))


@pytest.mark.parametrize("name", ["build table", "remove"])
def test_a_pointer_that_another_command_replaced_meanwhile_is_not_overwritten(name, bucket, inputs):
    command = COMMANDS[name]
    case = Case(command, bucket, inputs)
    bucket.start({})
    for line in (*command.before, command.then):
        case.run(line)
    other = bucket.files()
    bucket.start({})
    for line in command.before:
        case.run(line)
    store, pointer = obstore.store.from_url(bucket.url), f"{bucket.number}/data/{POINTER}"
    overtaken = []

    def overtake(what: str) -> None:
        if what.endswith(pointer) and not overtaken:
            overtaken.append(what)
            # the pointer of the other command is written last
            for path, data in sorted(other.items(), key=lambda item: item[0].endswith(POINTER)):
                store.put(f"{bucket.number}/{path}", data)

    with bucket.steps() as steps:
        steps.meanwhile = overtake
        status, printed = run(case.words(command.line))
    assert overtaken
    assert status == 1, printed
    files = bucket.files()
    assert files[f"data/{POINTER}"] == other[f"data/{POINTER}"]
    assert examples(files, "data", files[f"data/{POINTER}"])
