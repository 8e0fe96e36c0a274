# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From where the figures of a model come: results of tasks as Ansible registers them."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils._model_choice import chosen_model
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_read import read_folder

SHAPE = {"attention": "mha", "layers": 30}
GIVEN = {"attention": "mha", "layers": 31}
FOLDER = {
    "complete": True,
    "geometry": SHAPE,
    "weight_bytes": 100,
    "weight_table": [{"name": "a"}],
    "source": "model folder",
}
HUB = dict(FOLDER, weight_bytes=200, source="hub http://hub", commit="abc")
# failed_when leaves no mark of the failure but the message.
NO_FOLDER = {"failed": False, "msg": "Expected a model folder at /m, found nothing: check the path of the model."}
NO_HUB = {"failed": False, "msg": "The hub was expected and did not answer."}
HALF_HUB = {"complete": False, "problems": ["c is missing."]}
SKIPPED = {"skipped": True, "skip_reason": "Conditional result was False"}
INCOMPLETE = dict(FOLDER, complete=False, weight_bytes=None, weight_table=[], problems=["b is missing."])
UNKNOWN = dict(FOLDER, geometry=None, geometry_problem="The KV cell is not known.")
NOTHING = {"geometry": None, "weight_bytes": None, "cell_bytes": None}
BOTH = {"geometry": GIVEN, "weight_bytes": 300, "cell_bytes": ""}
BY_VARIABLES = "sglang_server_geometry and sglang_server_weight_bytes"


@pytest.mark.parametrize(
    ("folder", "hub", "settings", "layers", "weight_bytes", "unchecked"),
    [
        (FOLDER, SKIPPED, NOTHING, 30, 100, []),
        (FOLDER, SKIPPED, BOTH, 30, 100, []),
        (
            NO_FOLDER,
            HUB,
            BOTH,
            30,
            200,
            ["The model is not on the host yet; the plan takes the hub http://hub, commit abc."],
        ),
        (
            INCOMPLETE,
            HUB,
            NOTHING,
            30,
            200,
            ["The model is not on the host yet; the plan takes the hub http://hub, commit abc."],
        ),
        (NO_FOLDER, SKIPPED, BOTH, 31, 300, [NO_FOLDER["msg"][:-1] + f"; the plan takes {BY_VARIABLES}."]),
        (NO_FOLDER, NO_HUB, BOTH, 31, 300, [NO_HUB["msg"][:-1] + f"; the plan takes {BY_VARIABLES}."]),
        (
            NO_FOLDER,
            SKIPPED,
            NOTHING,
            None,
            None,
            [
                NO_FOLDER["msg"][:-1]
                + f"; without it a plan needs sglang_model_repo and sglang_model_revision, or {BY_VARIABLES}."
            ],
        ),
        (NO_FOLDER, NO_HUB, NOTHING, None, None, [NO_HUB["msg"][:-1] + f"; without it a plan needs {BY_VARIABLES}."]),
        # The hub was asked: naming the variables by which it is asked would help nobody.
        (NO_FOLDER, HALF_HUB, NOTHING, None, None, [f"c is missing; without it a plan needs {BY_VARIABLES}."]),
        (
            NO_FOLDER,
            NO_HUB,
            {"cell_bytes": 46080},
            None,
            None,
            [NO_HUB["msg"][:-1] + "; without it a plan needs sglang_server_weight_bytes."],
        ),
        (
            INCOMPLETE,
            SKIPPED,
            NOTHING,
            30,
            None,
            [
                "b is missing; without it a plan needs sglang_model_repo and sglang_model_revision,"
                " or sglang_server_weight_bytes."
            ],
        ),
        (INCOMPLETE, SKIPPED, BOTH, 30, 300, ["b is missing; the plan takes sglang_server_weight_bytes."]),
        (UNKNOWN, SKIPPED, {"cell_bytes": 46080}, None, 100, []),
        (UNKNOWN, SKIPPED, BOTH, 31, 100, ["The KV cell is not known."]),
    ],
)
def test_the_best_place_counts_and_what_is_not_checked_is_one_sentence(
    folder, hub, settings, layers, weight_bytes, unchecked
):
    found = chosen_model(folder, hub, settings)
    assert ((found.get("geometry") or {}).get("layers"), found.get("weight_bytes")) == (layers, weight_bytes)
    assert found["unchecked"] == unchecked
    assert all(one.count(". ") == 0 for one in found["unchecked"])


def test_the_table_of_tensors_comes_with_the_place():
    assert chosen_model(NO_FOLDER, HUB, BOTH)["weight_table"] == [{"name": "a"}]
    assert "weight_table" not in chosen_model(NO_FOLDER, SKIPPED, BOTH)
    assert "msg" not in chosen_model(NO_FOLDER, NO_HUB, NOTHING)


@pytest.mark.parametrize(
    ("problems", "said"),
    [
        (["a is missing."], "a is missing; without it"),
        (["a is missing.", "b is missing."], "a is missing (and 1 more file); without it"),
        (["a is missing."] + ["b is missing."] * 159, "a is missing (and 159 more files); without it"),
    ],
)
def test_many_files_that_are_missing_are_still_one_sentence(problems, said):
    (sentence,) = chosen_model(dict(INCOMPLETE, problems=problems), {}, {})["unchecked"]
    assert sentence.startswith(said)


PICKLED = {"msg": "Expected safetensors files in the model folder, found pickled weights only."}
CUT = dict(INCOMPLETE, problems=["b.safetensors is damaged: it is cut off, fetch it again."])


@pytest.mark.parametrize(
    ("folder", "hub", "settings", "refused"),
    [
        (FOLDER, SKIPPED, NOTHING, []),
        (NO_FOLDER, SKIPPED, NOTHING, []),
        (INCOMPLETE, SKIPPED, NOTHING, []),
        (PICKLED, SKIPPED, NOTHING, [PICKLED["msg"]]),
        (PICKLED, SKIPPED, BOTH, [PICKLED["msg"]]),
        (PICKLED, NO_HUB, NOTHING, [PICKLED["msg"]]),
        (PICKLED, HUB, NOTHING, []),
        (CUT, SKIPPED, BOTH, CUT["problems"]),
        (CUT, HUB, NOTHING, []),
        (UNKNOWN, SKIPPED, NOTHING, ["The KV cell is not known."]),
        (UNKNOWN, SKIPPED, {"cell_bytes": 46080}, []),
        (UNKNOWN, SKIPPED, BOTH, []),
    ],
)
def test_a_folder_that_can_never_start_is_refused_and_not_left_unchecked(folder, hub, settings, refused):
    """Unless the role sglang_model can bring the model from the hub."""
    found = chosen_model(folder, hub, settings)
    assert found["refused"] == refused
    assert not (refused and found["unchecked"])


def test_no_folder_is_told_as_the_reading_room_tells_it(tmp_path):
    with pytest.raises(ValueError, match="found nothing") as caught:
        read_folder(str(tmp_path / "none"))
    assert chosen_model({"msg": str(caught.value)}, SKIPPED, NOTHING)["refused"] == []
