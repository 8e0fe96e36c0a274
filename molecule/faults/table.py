"""Holds what was seen of every fault against what was expected of it, and prints the table.

python table.py FAULTS.yml RESULTS
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

import yaml

SAID_WIDTH = 74


def served(look: dict, result: dict) -> str:
    """What served when it was looked at: old | new | hand | nothing, or what else it was."""
    if not look["by"]:
        return "nothing"
    if look["by"] == "hand":
        return "hand"
    names = {result["seen"]["before"]["context_tokens"]: "old", result["new"]: "new"}
    return names.get(int(look["context_tokens"]), f"context {look['context_tokens']}")


def wrong_at_the_end(look: dict, serves: str) -> list[str]:
    """What must not be after the next run, whatever the fault was."""
    found = []
    if serves == "nothing":
        if not look["evidence"]:
            found.append("nothing serves and nothing is remembered")
        if any(state not in ("inactive", "failed") for state in look["states"]):
            found.append(f"not cleanly stopped: {look['states']}")
        return found
    if not look["answers"]:
        found.append("it does not answer")
    if look["open"]:
        found.append("a change is open")
    if serves in ("old", "new") and not (look["proven"] and look["enabled"]):
        found.append("what serves is not proven, or does not start at boot")
    if serves == "hand" and not look["hand_enabled"]:
        found.append("it does not start at boot as it did")
    if look["left"] or look["drift"]:
        found.append(f"left behind: {[*look['left'], *look['drift']]}")
    return found


def wrong(result: dict) -> list[str]:
    """What of a fault is not as it should be; empty when all is."""
    seen, expected = result["seen"], result["fault"]["expect"]
    found = []
    for run, words in (("first", expected.get("says", [])), ("next", expected.get("next_says", []))):
        outcome = seen[run]["outcome"]
        ended = [outcome.get("verdict"), outcome.get("way_back")]
        if run in expected and ended != expected[run]:
            found.append(f"{run} run: {ended} instead of {expected[run]}")
        found += [f"{run} run does not say '{word}'" for word in words if word not in seen[run]["said"]]
    for look, serves in zip(("after_first", "after_next"), expected["serves"]):
        if served(seen[look], result) != serves:
            found.append(f"{look}: {served(seen[look], result)} serves instead of {serves}")
    if "after_restart" in expected and served(seen["after_restart"], result) != expected["after_restart"]:
        found.append(f"after the restart {served(seen['after_restart'], result)} serves")
    if not expected.get("restarts", True) and seen["before"]["invocation_id"] != seen["after_first"]["invocation_id"]:
        found.append("what served was restarted")
    return found + wrong_at_the_end(seen["after_next"], expected["serves"][1])


def cell(text: str) -> str:
    return textwrap.shorten(text, SAID_WIDTH, placeholder=" ...")


def table(results: list[dict]) -> list[str]:
    lines = []
    for result in results:
        fault, seen, problems = result["fault"], result["seen"], wrong(result)
        serves = " > ".join(served(seen[look], result) for look in ("before", "after_first", "after_next"))
        lines += [
            f"{'ok   ' if not problems else 'WRONG'} {fault['name']}: {fault['what']} ({result['host']})",
            f"        first run   {cell(seen['first']['said'])}",
            f"        next run    {cell(seen['next']['said'])}",
            f"        serves      {serves}",
            *(f"        wrong       {problem}" for problem in problems),
        ]
    right = sum(not wrong(result) for result in results)
    return [*lines, f"{right} of {len(results)} faults ended as they should."]


def read(faults: Path, folder: Path) -> list[dict]:
    """Results of the faults that ran, in the order of the list."""
    names = [fault["name"] for fault in yaml.safe_load(faults.read_text())["faults"]]
    return [json.loads((folder / f"{name}.json").read_text()) for name in names if (folder / f"{name}.json").exists()]


if __name__ == "__main__":
    print(*table(read(Path(sys.argv[1]), Path(sys.argv[2]))), sep="\n")
