# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a token costs: what server arguments alone decide, the page size and what makes a layout unknown. Private."""

from __future__ import annotations

import json

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import canonical_arguments, version_at_least
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import (
    LayoutError,
    UnknownLayout,
    argument_number,
    field_of,
    is_on,
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


# sglang 0.4.4 srt/configs/model_config.py: the width of a head where latents are switched off, padded.
DISABLE_MLA_BEFORE, HEAD_DIM_WITHOUT_LATENTS = "0.4.6", 256
# sglang 0.4.6-0.4.10 srt/model_executor/model_runner.py: assert pp_size == 1 with latents.
MLA_STAGES_SINCE = "0.5.0"


def without_latents(geometry, arguments, engine_version, notes):
    """Return the geometry as C(disable-mla) of versions before 0.4.6 makes it: keys and values of every head."""
    stated = is_on(arguments.get("disable-mla") or False)
    if geometry.get("attention") != "mla" or not stated or version_at_least(engine_version, DISABLE_MLA_BEFORE):
        return geometry
    heads = field_of(geometry, "attention_heads")
    width = 128 if geometry.get("architecture") == "MiniCPM3ForCausalLM" else HEAD_DIM_WITHOUT_LATENTS
    notes.append("disable-mla keeps keys and values of every head instead of latents")
    return dict(geometry, attention="mha", kv_heads=heads, head_dim=width, v_head_dim=width)


def refuse_latent_stages(geometry, stages, engine_version):
    """Raise LayoutError where the engine itself ends the start of a model with latents in pipeline stages."""
    if geometry.get("attention") == "mla" and stages > 1 and not version_at_least(engine_version, MLA_STAGES_SINCE):
        raise LayoutError(
            f"Expected pp-size 1 for a model with latent attention (MLA) on SGLang {engine_version}, found {stages}:"
            f" versions before {MLA_STAGES_SINCE} end such a start, so take pp-size out of the server arguments, or"
            " install a newer engine."
        )


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
