"""Run a module's main() in this process, as a task would, and return its result."""

from __future__ import annotations

import contextlib
import io
import json

from ansible.module_utils import basic


@contextlib.contextmanager
def _arguments(arguments):
    try:
        from ansible.module_utils.testing import patch_module_args
    except ImportError:  # ansible-core 2.18 keeps them in a global
        basic._ANSIBLE_ARGS = json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode()
        yield
        basic._ANSIBLE_ARGS = None
        return
    with patch_module_args(arguments):
        yield


def run_module(module, arguments):
    """The JSON that ``module.main()`` prints for these arguments."""
    printed = io.StringIO()
    with _arguments(arguments), contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        module.main()
    return json.loads(printed.getvalue())
