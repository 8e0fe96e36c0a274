# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a token costs: what server arguments alone decide, the page size and what makes a layout unknown. Private."""

from __future__ import annotations

import json

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import canonical_arguments
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import (
    LayoutError,
    UnknownLayout,
    argument_number,
    optional_field,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_tables import (
    LAYOUT_ARGUMENTS,
    PAGE_RULES,
    SPARSE_PAGE_TOKENS,
)


def page_tokens_of(geometry, arguments):
    """Return the page size in tokens: as given, or what the attention backend or the layout forces."""
    arguments = canonical_arguments(arguments)
    page = argument_number(arguments, "page-size", 1)
    if isinstance(geometry, dict) and geometry.get("index_head_dim"):
        page = SPARSE_PAGE_TOKENS * optional_field(geometry, "index_kpool", 1)
    for row in PAGE_RULES:
        chosen = any(str(arguments.get(name)) == row.value for name in row.arguments)
        if chosen and page not in row.allowed:
            page = row.tokens
    return page


def refuse_layout_arguments(arguments):
    for row in LAYOUT_ARGUMENTS:
        value = arguments.get(row.name)
        if value is None or value in row.neutral or str(value).lower() in ("false", "no", "off"):
            continue
        if str(value) in [str(neutral) for neutral in row.neutral]:
            continue
        raise UnknownLayout(f"the server argument {row.name} {value}")
    _refuse_overrides(arguments.get("json-model-override-args"))


# Keys of a model configuration that cannot move the cell.
_HARMLESS_OVERRIDES = ("rope_scaling", "rope_theta", "rope_parameters", "max_position_embeddings")


def _refuse_overrides(value):
    """--json-model-override-args replaces keys of config.json: only those that cannot move the cell are let through."""
    if value in (None, "", "{}"):
        return
    try:
        overrides = json.loads(value) if isinstance(value, str) else dict(value)
        unknown = sorted(key for key in overrides if key not in _HARMLESS_OVERRIDES)
    except (TypeError, ValueError, AttributeError):
        raise LayoutError(
            f"Expected a JSON object for the server argument json-model-override-args, found {value!r}."
        ) from None
    if unknown:
        raise UnknownLayout("json-model-override-args with " + ", ".join(unknown))
