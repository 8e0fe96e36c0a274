# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: layers. Dictionaries of all hosts, of a group and of one host become one, and each value keeps its origin.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import canonical_name

# How the names of each kind are compared: arguments have several spellings, variables of the environment have one.
_SAME_NAME = {"arguments": canonical_name, "environment": str}


def named_once(values, origin, kind):
    """Return the entries of one layer by their one name. :raises ValueError: two spellings of one name."""
    result, spelled_as = {}, {}
    for key, value in values.items():
        name = _SAME_NAME[kind](str(key))
        if name in result:
            raise ValueError(
                f"Expected each name once in {origin}, found {spelled_as[name]!r} and {key!r}, which are both {name}: "
                "keep one of them."
            )
        result[name], spelled_as[name] = value, key
    return result


def merged_layers(layers, kind):
    """Lay dictionaries over each other: a later one wins, and a value of None removes the name.

    Names stand where the first layer that has them put them, so that the same layers give the same order.

    :arg layers: [{"origin": text for people, "values": dictionary or None}], the weakest first.
    :arg kind: C(arguments) (SGLang's, of which all spellings are one) or C(environment).
    :returns: {"merged": {name: value}, "origins": {name: origin}}
    :raises ValueError: one sentence.

    >>> merged_layers([{"origin": "a", "values": {"tp": 4}}, {"origin": "b", "values": {"tp_size": 8}}], "arguments")
    {'merged': {'tp-size': 8}, 'origins': {'tp-size': 'b'}}
    """
    if kind not in _SAME_NAME:
        raise ValueError(f"Expected one of {', '.join(_SAME_NAME)} as the kind of layers, found {kind!r}.")
    merged, origins = {}, {}
    for layer in layers:
        origin, values = str(layer["origin"]), layer.get("values")
        if values is None:
            continue
        if not isinstance(values, dict):
            raise ValueError(f"Expected a dictionary in {origin}, found {type(values).__name__}.")
        for name, value in named_once(values, origin, kind).items():
            if value is None:
                merged.pop(name, None)
                origins.pop(name, None)
            else:
                merged[name], origins[name] = value, origin
    return {"merged": merged, "origins": origins}
