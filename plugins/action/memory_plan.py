# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The planner runs on the controller: it needs no connection, changes nothing and is the same in check mode."""

from __future__ import annotations

import textwrap

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gpufleet.sglang.plugins.module_utils import _remembered
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget import plan
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_before import WARNING
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_options import (
    WAY_OUT,
    argument_spec,
    plan_input,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._origins import settings, table
from ansible_collections.gpufleet.sglang.plugins.module_utils._patience_serving import serving_patience

EXPLANATION_COLUMNS = 110


def numbers_first(args, spec):
    """Return a sentence about a number that is no number, or None.

    The validator would turn a boolean into 1 and say less about a text.
    """
    for name, option in spec.items():
        value = args.get(name)
        if option["type"] not in ("int", "float") or value is None:
            continue
        wanted = "a whole number" if option["type"] == "int" else "a number"
        try:
            number = float(value)
            whole = option["type"] == "float" or number == int(number)
            good = whole and not isinstance(value, bool)
        except (TypeError, ValueError, OverflowError):
            good = False
        if not good:
            return f"Expected {wanted} for {name}, found {value!r}: {WAY_OUT}."
    return None


KINDS = {"dict": "a dictionary", "bool": "true or false", "str": "a text", "list": "a list", "int": "a whole number"}


def kind_of(option):
    """Return in words what an option takes."""
    if option.get("choices"):
        return "one of {}".format(", ".join(option["choices"]))
    if option["type"] == "list" and option.get("elements") in ("dict", "int"):
        return "a list of {}".format({"dict": "dictionaries", "int": "whole numbers"}[option["elements"]])
    return KINDS.get(option["type"], "another value")


def validated(args, spec):
    """Return the validated options. Raises ValueError: one sentence that names the option and the way out.

    A list or a dictionary is not shown: somebody may have put a secret there.
    """
    problem = "a value that is no number of this machine"  # the validator itself stumbles over such
    try:
        checked = ArgumentSpecValidator(spec).validate(args)
        if not checked.error_messages:
            return checked.validated_parameters
        problem = checked.error_messages[0].rstrip(".")
    except OverflowError:
        pass
    for name, option in spec.items():
        if name not in args or _passes(name, option, args[name]):
            continue
        value, large = args[name], option["type"] in ("dict", "list")
        found = type(value).__name__ if large and not isinstance(value, (bool, int, float)) else repr(value)[:80]
        raise ValueError(f"Expected {kind_of(option)} for {name}, found {found}: {WAY_OUT}.")
    raise ValueError(f"The options of memory_plan are not right: {problem}.")


def _passes(name, option, value):
    try:
        return not ArgumentSpecValidator({name: option}).validate({name: value}).error_messages
    except OverflowError:
        return False


def plan_of(args):
    """Return the result of the task for its raw arguments: with C(failed) and a sentence where they cannot be right."""
    spec = argument_spec()
    sentence = numbers_first(args, spec)
    if sentence:
        return {"failed": True, "msg": sentence}
    try:
        params = validated(args, spec)
        given = plan_input(params)
        result = plan(given).as_dict()
    except ValueError as error:
        return {"failed": True, "msg": str(error)}
    warned = [row["note"] for row in result["rows"] if row["name"] == WARNING]
    if warned:
        result["warnings"] = warned
    result["arguments"], result["environment"] = serving_patience(
        result["decided"].get("context_tokens"),
        result["decided"].get("chunked_prefill_size"),
        given.device,
        result["arguments"],
        result["environment"],
    )
    configuration, kept = result, False
    if params.get("server") is not None:
        result["step"] = next_step_of(result, params)
        values = result["step"]["values"]
        configuration = values if "arguments" in values else result
        kept = configuration.get("config_hash") == (params["server"].get("proof") or {}).get("config_hash", "")
        if result["step"]["action"] != "try":
            # It runs on as it is, or not at all: what it takes is missing in the free memory already.
            result["boards"] = [dict(one, more_gib=0.0) for one in result["boards"]]
    result["remembered"] = _remembered.lines(params["measurements"], params["deaths"], result["quantity_keys"])
    result["settings"] = settings(configuration, params["origins"], params, kept)
    return result


def next_step_of(result, params):
    """Return the next step of the instance as data: C(action), C(values), C(reason)."""
    # Only a plan for an instance needs it; a bare plan must not depend on the room that decides.
    from ansible_collections.gpufleet.sglang.plugins.module_utils._step import next_step

    settings = {
        "request": params.get("request") or {},
        "max_attempts": params["max_attempts"],
        "engine_version": params.get("engine_version"),
        "problems": [one["sentence"] if isinstance(one, dict) else str(one) for one in params["problems"]],
        "allow_unproven_plan": params["allow_unproven_plan"],
        "look_only": params["look_only"],
        "soak_wanted": params["soak_wanted"],
        "when_not_proven": params["when_not_proven"],
        "unit_text": params.get("unit_text"),
        "overwrite_drift": params["overwrite_drift"],
        "restart_pending": params["restart_pending"],
    }
    return next_step(result, params["server"], params["attempts"], settings)


def show(plan, host, display):
    """Print the table of a plan and its explanation; in the result of a task a table would lose its columns."""
    explanation = textwrap.wrap(plan["explanation"], EXPLANATION_COLUMNS)
    remembered = [""] + plan["remembered"] if plan["remembered"] else []
    for line in plan["table"] + [""] + explanation + remembered + [""] + table(plan["settings"]):
        display(f"{host} | {line}".rstrip())


class ActionModule(ActionBase):
    """Plan the memory of a server."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        del tmp
        result["changed"] = False
        result.update(plan_of(dict(self._task.args)))
        if boolean(self._task.args.get("show", False)) and not result.get("failed"):
            show(result, (task_vars or {}).get("inventory_hostname", "host"), Display().display)
        return result
