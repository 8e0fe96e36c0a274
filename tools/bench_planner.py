# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How near the planner comes to real start-ups from public reports: figures by family, and every row left out.

    bench_planner.py [--rows] [--write]     --rows: each row with its error; --write: the table of docs/memory.md

(a) measured: the budget from the printed load figures against the printed bytes of the pool
(b) cell:     bytes of a token from geometry, layout and version against printed bytes / tokens
(c) blind:    from board, geometry, weights and arguments alone against the printed pool
(d) dead:     every refused or dead start: does the plan refuse or warn, in the right direction? And does it let live
              what lived?
(e) headroom: what is free when the server is ready, from printed load figures and from the board alone: is the printed
              figure inside the band? And what two starts of one configuration differ by: inside the noise?
headers:      processor time in which the headers of 200 shards are read

Ends with status 1 when a bound is missed. Data: tests/data/startups.yaml, geometry.yaml, bench.yaml.
"""

from __future__ import annotations

import argparse
import statistics
import sys

import planner_headers
import tree
from planner_ends import alive, dead, headroom, headroom_missed, incidents, noise
from planner_groups import (
    BLIND_BAND_SHARE,
    BLIND_MEDIAN_SHARE,
    MEASURED_GIB,
    MEASURED_ROWS,
    MEASURED_SHARE,
    PRINTED,
    blind,
    cells,
    measured,
)
from planner_starts import starts

from ansible_collections.gpufleet.sglang.plugins.module_utils._model_read import read_folder  # isort: skip

# ---------------------------------------------------------------------------
# Report
# ---------------------------------------------------------------------------


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def table(results, rows=False):
    """Print figures by family: rows, median, 90th percentile and worst of the error, in GiB and in tokens."""
    families = sorted({one.family for one in results})
    print(f"  {'family':<24} {'rows':>4} {'good':>4}  {'median':>17} {'90%':>19} {'worst':>19}")
    for family in families + (["all"] if len(families) > 1 else []):
        ours = [one for one in results if family in (one.family, "all")]
        gib = [abs(one.error_gib) for one in ours]
        tokens = [abs(one.error_tokens) for one in ours]
        figures = "  ".join(f"{pick(gib):6.3f} GiB {pick(tokens):8,.0f}" for pick in (statistics.median, _ninety, max))
        print(f"  {family:<24} {len(ours):>4} {sum(one.good for one in ours):>4}  {figures}")
    for one in results:
        if rows or not one.good:
            show(one, f"{one.error_gib:+8.3f} GiB {one.error_tokens:+12,.0f}  ")


def show(one, figures=""):
    """Print one row: MISS, and why where it is known."""
    mark = "     " if one.good else "MISS "
    print(f"    {mark}{one.id:<38} {figures}{one.note}")
    if one.explained and not one.good:
        print(f"         explained: {one.explained}")


def unexplained(results):
    return [one.id for one in results if not one.good and not one.explained]


def _ninety(values):
    return percentile(values, 0.9)


def left_out(out):
    if out:
        print(f"  left out: {len(out)}")
    for name, why in out:
        print(f"    {name:<38} {why}")


def report(rows=False):
    """Print all groups; return the bounds that are missed, as sentences."""
    all_starts, boards, checkpoints = starts()
    missed = []

    complete, near, out = measured(all_starts)
    print("(a) measured: budget from printed load figures against the printed pool, complete rows")
    table(complete, rows)
    print("    rows with one load figure by difference, or without a version")
    table(near, rows)
    left_out(out)
    missed += measured_missed(complete, near)

    found, out = cells(all_starts)
    print("(b) cell: bytes of a token against printed bytes / tokens; good: within print rounding")
    table(found, rows)
    left_out(out)
    if not all(one.good for one in found):
        missed.append("(b) " + ", ".join(one.id for one in found if not one.good))

    found, told, out = blind(all_starts, boards, checkpoints)
    printed = blind(all_starts, boards, checkpoints, PRINTED)[0]
    print("(c) blind: from board, geometry, weights (checkpoint bytes where they are known, else printed ones) and")
    print("    arguments; good: the bad end of the band is kept")
    table(found, rows)
    print(f"    {blind_words(found)}; asked for are under {BLIND_MEDIAN_SHARE:.0%} and at most {BLIND_BAND_SHARE:.1%}")
    for how, ours in by_weights(found):
        print(f"    {how}: {blind_words(ours)}")
        table(ours, rows)
    print(f"    every row with the weights that it printed itself: {blind_words(printed)}")
    table(printed)
    print("    rows whose board is not known: free before load as printed")
    table(told, rows)
    left_out(out)
    missed += blind_missed(found, told, printed)

    found, out = dead(all_starts)
    lived = alive(all_starts)
    print(
        "(d) dead: refused or dead starts; good: infeasible at that fraction in the direction of the report (raise: a"
    )
    print("    larger one, lower: a smaller one, weights: none), and where one is reported to work, one is named")
    for one in found + incidents():
        show(one, f"{one.family:<8} ")
    left_out(out)
    refused = sum(not one.good for one in lived)
    print(f"    starts that lived: {len(lived)}, refused {refused}")
    for one in lived:
        if rows or not one.good:
            show(one)
    missed += dead_missed(found + incidents(), lived)

    found, out = headroom(all_starts)
    print("(e) headroom when ready, from printed load figures; good: the printed figure is inside the band")
    table(found, rows)
    print("    from the board and weights as in (c)")
    from_board = headroom(all_starts, boards, checkpoints)[0]
    table(from_board, rows)
    pairs = noise()
    print("    two starts of one configuration; good: they differ by no more than the noise of both")
    for one in pairs:
        show(one)
    left_out(out)
    return missed + headroom_missed(found, from_board, pairs)


def measured_missed(complete, near):
    """Return the bounds of (a) that are missed: nine of ten complete rows, and each that misses is explained."""
    missed = []
    share = sum(one.good for one in complete) / len(complete)
    if share < MEASURED_ROWS:
        missed.append(f"(a) {share:.0%} of the complete rows within {MEASURED_GIB} GiB or {MEASURED_SHARE:.1%}")
    wrong = unexplained(complete + near)
    return missed + (["(a) not explained: " + ", ".join(wrong)] if wrong else [])


def by_weights(found):
    """Return [(where the weights come from, the results of (c))]."""
    return [(how, [one for one in found if one.how == how]) for how in sorted({one.how for one in found})]


def blind_shares(found):
    """Return (median error, median half band) as shares of the board."""
    error = statistics.median(abs(one.error_gib) / one.board_gib for one in found)
    return error, statistics.median(one.band_gib / one.board_gib for one in found)


def blind_words(found):
    error, band = blind_shares(found)
    kept = sum(one.good for one in found)
    return f"{len(found)} rows, median error {error:.2%} and median half band {band:.2%} of the board, kept in {kept}"


def blind_missed(found, told, printed):
    """Return the bounds of (c) that are missed, as sentences. The promise is kept in every row."""
    missed = []
    under = [one.id for one in found + told + printed if not one.good]
    if under:
        missed.append("(c) under the band: " + ", ".join(under))
    for name, ours in (("all", found), ("as printed", printed)):
        error, band = blind_shares(ours)
        if error >= BLIND_MEDIAN_SHARE or band > BLIND_BAND_SHARE:
            missed.append(f"(c) {name}: error {error:.2%}, half band {band:.2%} of the board")
    return missed


def dead_missed(found, lived):
    """Return the bounds of (d) that are missed: each miss is explained, and every "increase" is called infeasible."""
    wrong = unexplained(found + lived)
    feasible = [one.id for one in found if one.family == "raise" and "called feasible" in one.note]
    return ["(d) " + ", ".join(wrong + feasible)] if wrong + feasible else []


BEGIN, END = "<!-- begin bench -->", "<!-- end bench -->"
DOCS = tree.ROOT / "docs" / "memory.md"
FATES = {
    "raise": "d dead, a larger fraction wanted",
    "lower": "d dead, a smaller fraction wanted",
    "weights": "d dead, weights that do not fit",
    "incident": "d reference case",
    "alive": "d lived, not refused",
}


def docs_table():
    """Return the table of docs/memory.md: each group by family."""
    all_starts, boards, checkpoints = starts()
    found, told, dummy = blind(all_starts, boards, checkpoints)
    printed = blind(all_starts, boards, checkpoints, PRINTED)[0]
    groups = (
        ("a measured", measured(all_starts)[0]),
        ("a, one load figure by difference", measured(all_starts)[1]),
        ("b cell", cells(all_starts)[0]),
        ("c blind", found),
        *((f"c, {how}", ours) for how, ours in by_weights(found)),
        ("c, every row as printed", printed),
        ("c, free before load as printed", told),
        ("e headroom when ready", headroom(all_starts)[0]),
        ("e, from the board", headroom(all_starts, boards, checkpoints)[0]),
    )
    lines = ["| group | family | rows | good | median GiB (tokens) | 90% | worst |", "|---|---|---|---|---|---|---|"]
    for name, results in groups:
        families = sorted({one.family for one in results})
        for family in families + (["all"] if len(families) > 1 else []):
            ours = [one for one in results if family in (one.family, "all")]
            gib = [abs(one.error_gib) for one in ours]
            tokens = [abs(one.error_tokens) for one in ours]
            figures = [f"{pick(gib):.3f} ({pick(tokens):,.0f})" for pick in (statistics.median, _ninety, max)]
            cells_of = [name, family, str(len(ours)), str(sum(one.good for one in ours)), *figures]
            lines.append("| " + " | ".join(cells_of) + " |")
    died = dead(all_starts)[0] + incidents() + alive(all_starts)
    for family, name in FATES.items():
        ours = [one for one in died if one.family == family]
        good = sum(one.good for one in ours)
        lines.append(f"| {name} | | {len(ours)} | {good} | | | |")
    last = f"Blind, all: {blind_words(found)}. "
    last += f"Every row with the weights that it printed itself: {blind_words(printed)}."
    half = statistics.median(one.band_gib for one in headroom(all_starts)[0] if one.family == "own memory")
    last += f" Headroom: median half band {half:.2f} GiB on boards with memory of their own."
    return "\n".join([*lines, "", last])


def written(text):
    """Return the text of docs/memory.md with a fresh table."""
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n{docs_table()}\n{END}{rest.split(END)[1]}"


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rows", action="store_true", help="each row with its error")
    parser.add_argument("--write", action="store_true", help="write the table of docs/memory.md")
    options = parser.parse_args(arguments)
    if options.write:
        DOCS.write_text(written(DOCS.read_text()))
    missed = report(options.rows)
    print("headers of a model folder")
    read = planner_headers.measured(read_folder)
    for line in planner_headers.lines(read):
        print("  " + line)
    missed += planner_headers.missed(read)
    for one in missed:
        print("MISSED " + one)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
