"""A command that ends between two requests to a store leaves the old dataset or the new one."""

from collections.abc import Iterator

import obstore.store
import pytest

from tests.campaigns import SCALE, cases
from tests.storage.conftest import lead_to, new_bucket

from .commands import COMMANDS, POINTER, run
from .judge import examples, judge
from .places import Bucket, Case, Folder, chosen, undisturbed
from .steps import Crash

pytestmark = pytest.mark.campaign

NUM_MOMENTS = cases(2, nightly=1000)
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
    for moment in chosen(case, NUM_MOMENTS, REMOTE.index(name)):
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
