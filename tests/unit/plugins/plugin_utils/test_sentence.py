from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.sglang.plugins.plugin_utils._sentence import as_filter


def test_a_value_error_is_the_sentence_of_the_filter():
    @as_filter
    def refuse(value, name="x"):
        raise ValueError("Expected nothing for %s, found %r: remove it." % (name, value))

    with pytest.raises(AnsibleFilterError, match="Expected nothing for y, found 3: remove it"):
        refuse(3, name="y")


def test_a_result_passes():
    assert as_filter(len)("abc") == 3
