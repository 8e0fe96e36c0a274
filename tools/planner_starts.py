# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real start-ups from public reports, as the planner is given them: data, geometry, arguments, cell.

For bench_planner.py. Data: tests/data/startups.yaml, geometry.yaml, bench.yaml.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

import tree
import yaml

DEVTREE = str(tree.link().parents[2])
if DEVTREE not in sys.path:
    sys.path.append(DEVTREE)

from ansible_collections.gpufleet.sglang.plugins.module_utils import _kv  # noqa: E402
from ansible_collections.gpufleet.sglang.plugins.module_utils._model import read_geometry  # noqa: E402
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_created import created_of  # noqa: E402

DATA = tree.ROOT / "tests" / "data"
GIB = 2**30
PRINTED_GIB = 0.005  # two decimals


@dataclass(frozen=True)
class Start:
    """A start-up with what the bench adds to it."""

    row: dict
    more: dict
    geometry: dict | None
    geometry_problem: str
    created: tuple = ()  # what the engine makes besides the files
    environment: tuple = ()  # (name, value), as far as the source tells

    @property
    def id(self):
        return self.row["id"]

    @property
    def version(self):
        printed = re.match(r"(\d+\.\d+\.\d+)", str(self.row.get("sglang_version") or ""))
        found = self.more.get("version") or (printed.group(1) if printed else None)
        return None if found is None or found.startswith("0.0.0") else found

    @property
    def before_gib(self):
        return self.row["load_begin_avail_gb"]

    @property
    def after_gib(self):
        return self.row["load_end_avail_gb"]

    @property
    def weights_gib(self):
        return self.row["weights_gb"]

    @property
    def fraction(self):
        return self.row["mem_fraction_static"]

    @property
    def tokens(self):
        return self.row["max_total_num_tokens"] or self.row["kv_tokens"]

    @property
    def kv_gib(self):
        """Printed bytes of the pools of keys and values, GiB."""
        row = self.row
        if row["kv_total_gb"] is not None:
            return row["kv_total_gb"]
        if row["kv_k_gb"] is None:
            return None
        return row["kv_k_gb"] + (row["kv_k_gb"] if row["kv_v_gb"] is None else row["kv_v_gb"])

    @property
    def kv_error_gib(self):
        """Half a print step for each figure that was added up."""
        figures = self.more.get("figures") or (1 if self.row["kv_total_gb"] is not None else 2)
        return PRINTED_GIB * figures

    @property
    def state_gib(self):
        found = self.row["mamba_cache"] or {}
        return sum(value for name, value in found.items() if name.endswith("_gb"))


# ---------------------------------------------------------------------------
# Reading
# ---------------------------------------------------------------------------


def load(name):
    return yaml.safe_load((DATA / f"{name}.yaml").read_text())


def geometry_of(config):
    """Return (geometry, problem, what is created) of a configuration as the planner itself reads it."""
    config = {key: value for key, value in config.items() if key != "how_known"}
    try:
        return read_geometry(config), "", tuple(created_of(config))
    except ValueError as error:
        return None, str(error), ()


def starts():
    """Return (the Starts, the boards, the checkpoints)."""
    bench, shapes = load("bench"), load("geometry")
    read = {}
    found = []
    for row in load("startups"):
        more = bench["rows"].get(row["id"], {})
        name = more.get("geometry")
        if name and name not in read:
            keys = dict(shapes[name], **bench["shapes"].get(name, {}).get("keys", {}))
            read[name] = geometry_of({key: value for key, value in keys.items() if value is not None})
        unknown = (None, "the model is not named, or its geometry is not public", ())
        geometry, problem, created = read[name] if name else unknown
        if geometry and more.get("text_only"):
            geometry = dict(geometry, multimodal=False)
        environment = bench["environments"][more["environment"]]["environment"] if "environment" in more else {}
        found.append(Start(row, more, geometry, problem, created, tuple(environment.items())))
    return found, bench["boards"], bench["checkpoints"]


KV_DTYPES = {"float8_e4m3fn": "fp8_e4m3", "fp8": "fp8_e4m3", "float4_e2m1fn_x2": "fp4_e2m1"}
# What of a printed argument list can matter here; the rest are defaults.
TAKEN = (
    "swa-full-tokens-ratio",
    "disable-radix-cache",
    "disable-hybrid-swa-memory",
    "mamba-full-memory-ratio",
    "enable-dp-attention",
    "language-only",
    "disable-cuda-graph",
    "disable-prefill-cuda-graph",
    "disable-piecewise-cuda-graph",
    "mamba-radix-cache-strategy",
    "cuda-graph-backend-prefill",
)


def arguments_of(start):
    """Return the server arguments of a start-up, as far as its report tells them."""
    row = start.row
    found = dict(printed_arguments(str(row["other_args"] or "")))
    fields = {
        "tp-size": "tp",
        "dp-size": "dp",
        "ep-size": "ep",
        "pp-size": "pp",
        "page-size": "page_size",
        "max-running-requests": "max_running_requests",
        "chunked-prefill-size": "chunked_prefill_size",
        "max-total-tokens": "max_total_tokens_arg",
        "nnodes": "nnodes",
    }
    for argument, name in fields.items():
        if row[name] is not None:
            found[argument] = row[name]
    if row["tp"] is None and row["pp"] is None:
        found.pop("nnodes", None)  # how many ranks are on a node is not known then
    dtype = re.sub(r"^torch\.", "", str(row["kv_cache_dtype"] or "auto")).split(" ")[0]
    if KV_DTYPES.get(dtype, dtype).startswith(("fp8", "fp4")):
        found["kv-cache-dtype"] = KV_DTYPES.get(dtype, dtype)
    if row["cuda_graph_max_bs"]:
        found["cuda-graph-max-bs"] = row["cuda_graph_max_bs"]
    algorithm = re.match(r"(EAGLE3?|NEXTN|STANDALONE|DFLASH)\b", str((row["speculative"] or {}).get("algorithm")))
    if algorithm:
        found["speculative-algorithm"] = algorithm.group(1)
    found.update(start.more.get("arguments", {}))
    return found


def printed_arguments(text):
    """Yield (argument, value) from a command line or from a printed list of ServerArgs."""
    for name in TAKEN:
        line = re.search(rf"--{name}(?:[ =]([^\s-][^\s,]*))?(?=[\s,]|$)", text)
        listed = re.search(rf"\b{name.replace('-', '_')}=('?)([^,' ]+)\1", text)
        if line:
            yield name, True if line.group(1) is None else line.group(1)
        elif listed and listed.group(2) not in ("None", "False"):
            yield name, True if listed.group(2) == "True" else listed.group(2)


def family_of(start):
    """Return the family of KV layouts, as far as the geometry or the printed lines tell."""
    cell = cell_of(start)[0]
    return "not known" if cell is None else f"{cell.layout} {cell.kv_dtype}"


def input_of(start, **more):
    """Return the options of a plan for a start-up: geometry, arguments, version, fraction and C(more)."""
    options = {"arguments": arguments_of(start), "pool_policy": "fill", "mem_fraction_static": start.fraction}
    if start.geometry is not None:
        options["geometry"] = start.geometry
    if start.version is not None:
        options["engine_version"] = start.version
    if start.environment:
        options["environment"] = dict(start.environment)
    options.update(more)
    for name in ("max-running-requests", "chunked-prefill-size"):
        options["arguments"].setdefault(name, None)
    options["arguments"] = {name: value for name, value in options["arguments"].items() if value is not None}
    return options


def cell_of(start):
    """Return (Cell, problem)."""
    if start.geometry is None:
        return None, start.geometry_problem
    try:
        page = start.row["page_size"]
        return _kv.cell_bytes(start.geometry, arguments_of(start), start.version, page_tokens=page), ""
    except ValueError as error:
        return None, str(error)


def load_figures(start):
    """Return (free before, free after, how), the third figure by difference when one is not printed; None without."""
    before, after, weights = start.before_gib, start.after_gib, start.weights_gib
    if before is not None and after is not None:
        return before, after, ""
    if before is not None and weights is not None:
        return before, before - weights, "after by difference; "
    if after is not None and weights is not None:
        return after + weights, after, "before by difference; "
    return None
