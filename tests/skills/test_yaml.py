import subprocess
import sys

import pytest
from hypothesis import given

from harness import JSON
from harness.skills import pyyaml
from tests.skills.examples import metadata_values

YAML = pyyaml()


@given(metadata_values)
def test_what_is_dumped_loads_as_it_was(value: JSON) -> None:
    assert YAML.load(YAML.dump({"key": value})) == {"key": value}


def test_an_alias_is_refused_and_what_is_shared_is_written_twice() -> None:
    with pytest.raises(Exception, match="an alias, expected none"):
        YAML.load("a: &a [1]\nb: *a\n")
    shared: list[JSON] = [1]
    assert YAML.dump({"a": shared, "b": shared}) == "a:\n- 1\nb:\n- 1\n"


def test_dates_stay_texts_and_a_merge_is_a_key() -> None:
    assert YAML.load("a: 2026-01-02\nb: 2026-01-02T03:04:05Z\n<<: x\n") == {
        "a": "2026-01-02",
        "b": "2026-01-02T03:04:05Z",
        "<<": "x",
    }


def test_a_word_is_a_word_and_a_truth_is_a_truth() -> None:
    words = "[no, yes, on, Off, true, False, ~, n, trueish]"
    assert YAML.load(words) == ["no", "yes", "on", "Off", True, False, None, "n", "trueish"]


def test_nothing_is_run_by_reading() -> None:
    with pytest.raises(Exception, match="could not determine a constructor"):
        YAML.load("!!python/object/apply:os.system ['true']")


def test_pyyaml_itself_is_left_as_it_was() -> None:
    program = (
        "import harness.skills, sys; assert 'yaml' not in sys.modules; harness.skills.pyyaml();"
        "import yaml, datetime;"
        "assert yaml.safe_load('a: &a [2026-01-02]\\nb: *a')['b'] == [datetime.date(2026, 1, 2)]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_pyyaml_the_error_names_the_extra() -> None:
    program = (
        "import sys; sys.modules['yaml'] = None\n"
        "from harness.skills import pyyaml\n"
        "from harness.errors import MissingExtraError\n"
        "try:\n    pyyaml()\n"
        "except MissingExtraError as error:\n    print(error.extra, error.module)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert ended.stdout == "yaml yaml\n"
