"""Units written by the role's own template on the controller."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from on_host import FOLDER, ROLE  # noqa: E402

SETTINGS = {
    "model_path": FOLDER,
    "drain_seconds": 5,
    "timeout_seconds": 600,
    "boards_wait_seconds": 1,
    "hardening": "safe",
    "cuda_home": "",
    "api_key": "",
    "admin_api_key": "",
    "engine_version": "0.5.23",
    "unit_extra": {},
}
VARIABLES = {
    "ansible_python_interpreter": sys.executable,
    "sglang_server_engine_root": FOLDER + "/engines",
    "sglang_server_cache_dir": FOLDER + "/cache",
    "sglang_server_config_dir": FOLDER,
    "__sglang_server": "{{ item.settings }}",
    "__sglang_server_engine": {"version": "{{ item.settings.engine_version }}"},
    "__sglang_server_boards": "{{ item.boards }}",
    "__sglang_server_boards_script": FOLDER + "/boards.py",
    "__sglang_server_step": {"values": {"config_hash": "0" * 16, "arguments": {"port": 31999}}},
}


@pytest.fixture(scope="module")
def systemd_version(host):
    return int(re.search(r"systemd (\d+)", host.check_output("systemctl --version")).group(1))


@pytest.fixture(scope="module")
def render(systemd_version, tmp_path_factory):
    """Return a function: {name of an instance: its settings, with how many boards} -> {name: text of its unit}."""
    folder = tmp_path_factory.mktemp("units")

    def rendered(instances):
        cases = [
            {"boards": settings.pop("boards", 0), "settings": {**SETTINGS, **settings, "name": name}}
            for name, settings in instances.items()
        ]
        template = {
            "src": str(ROLE / "templates" / "sglang.service.j2"),
            "dest": "%s/{{ item.settings.name }}.service" % folder,
        }
        play = {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "vars_files": [str(ROLE / "defaults" / "main.yml"), str(ROLE / "vars" / "main.yml")],
            "tasks": [{"ansible.builtin.template": template, "loop": cases}],
        }
        (folder / "play.yml").write_text(json.dumps([play]))
        (folder / "vars.json").write_text(json.dumps({**VARIABLES, "__sglang_server_systemd_version": systemd_version}))
        command = ["ansible-playbook", "-i", "localhost,", "-e", "@%s/vars.json" % folder, "%s/play.yml" % folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return {name: (folder / (name + ".service")).read_text() for name in instances}

    return rendered
