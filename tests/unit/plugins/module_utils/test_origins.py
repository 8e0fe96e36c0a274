from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils import _origins

VALUES = {
    "arguments": {"tp-size": 8, "mem-fraction-static": 0.93, "chunked-prefill-size": 4096, "max-total-tokens": 200000},
    "environment": {"NCCL_DEBUG": "WARN", "PYTORCH_ALLOC_CONF": "expandable_segments:True"},
}
ORIGINS = {
    "arguments": {"tp-size": "sglang_server_arguments_group"},
    "environment": {"NCCL_DEBUG": "sglang_server_environment_host"},
}
OPTIONS = {"mem_fraction_static": 0.93, "chunked_prefill_size": "auto", "context_tokens": None}


def origins_of(rows):
    return {row["name"]: row["origin"] for row in rows}


def test_each_value_tells_where_it_comes_from():
    assert origins_of(_origins.settings(VALUES, ORIGINS, OPTIONS)) == {
        "tp-size": "sglang_server_arguments_group",
        "mem-fraction-static": "sglang_server_mem_fraction_static",
        "chunked-prefill-size": "plan",
        "max-total-tokens": "plan",
        "NCCL_DEBUG": "sglang_server_environment_host",
        "PYTORCH_ALLOC_CONF": "plan",
    }


def test_a_stated_allocator_is_the_users():
    rows = _origins.settings(VALUES, ORIGINS, dict(OPTIONS, allocator_conf="expandable_segments:True"))
    assert origins_of(rows)["PYTORCH_ALLOC_CONF"] == "sglang_server_allocator_conf"


def test_what_a_proof_keeps_was_planned_before():
    kept = origins_of(_origins.settings(VALUES, ORIGINS, OPTIONS, kept=True))
    assert kept["max-total-tokens"] == "proof"
    assert kept["tp-size"] == "sglang_server_arguments_group"


def test_a_secret_is_not_shown():
    rows = _origins.settings({"environment": {"HF_TOKEN": "hf_abcdefgh1234"}}, {}, {})
    assert "abcdefgh" not in str(rows)


def test_the_table_is_aligned():
    lines = _origins.table(_origins.settings(VALUES, ORIGINS, OPTIONS))
    assert lines[1] == "--tp-size               8                         sglang_server_arguments_group"
    assert lines[-1] == "PYTORCH_ALLOC_CONF      expandable_segments:True  plan"
    assert _origins.table([]) == []
