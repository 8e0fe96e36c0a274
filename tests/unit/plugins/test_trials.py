# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public reports about words, numbers, secrets and refusals (tests/data/words/trials.yaml), tried on this collection.

What a report's inventory becomes is made by Ansible itself, once for all reports: variables are evaluated, layers are
merged and templates rendered as the role does it. A unit is read back by a reader that shares no code with the product.
"""

from __future__ import annotations

import ast
import base64
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import tree
import yaml

from ansible_collections.gpufleet.sglang.plugins.action import memory_plan
from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _http,
    _preflight,
    _soak_client,
    _venv,
    _words,
)

ROOT = tree.ROOT
ROLE = ROOT / "roles" / "sglang_server"
TRIALS = {row["id"]: row for row in yaml.safe_load((ROOT / "tests/data/words/trials.yaml").read_text())}
SPECS = {
    name: yaml.safe_load((ROOT / "roles" / name / "meta" / "argument_specs.yml").read_text())
    for name in ("sglang_engine", "sglang_model", "sglang_server")
}
GOOD = {"sglang_model_path": "/srv/models/m", "sglang_server_target_tokens": 200000}
YAML_FILES = sorted(
    path for folder in ("roles", "playbooks") for path in (ROOT / folder).rglob("*.yml") if path.is_file()
)


def expected(trial):
    return TRIALS[trial]["expected"]


def trials_with(*keys):
    """Ids of the reports that say what to expect of one of these."""
    return [trial for trial, row in TRIALS.items() if set(keys) & set(row.get("expected", {}))]


# ---------------------------------------------------------------------------
# What Ansible makes of an inventory
# ---------------------------------------------------------------------------

# What the role finds out on a host.
FOUND = {
    "__sglang_server": "{{ __sglang_server_defaults | gpufleet.sglang.instance_settings({}) }}",
    "__sglang_server_step": {
        "values": {
            "arguments": "{{ __sglang_server_all_arguments }}",
            "environment": "{{ __sglang_server_all_environment }}",
            "config_hash": "0" * 16,
        }
    },
    "__sglang_server_engine": {"version": "0.5.23"},
    "__sglang_server_gpus": {"device": "cuda", "gpus": [{"name": "A"}, {"name": "B"}]},
    "__sglang_server_info": {"systemd_version": 252, "drop_ins": [], "proof": None},
}
WITH_INVENTORY = [trial for trial, row in TRIALS.items() if "inventory" in row]
TEMPLATES = {path.name: str(path) for path in sorted((ROLE / "templates").iterdir())}


def write_inventory(folder, hosts):
    """The role's defaults, what every host of these tests has, and what is its own."""
    defaults = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())
    common = {**defaults, **GOOD, "ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    path = folder / "inventory.yml"
    path.write_text(json.dumps({"all": {"vars": common, "hosts": hosts}}))
    return path


def play_of(hosts, tasks, **variables):
    return {
        "hosts": hosts,
        "gather_facts": False,
        "vars_files": [str(ROLE / "vars" / "main.yml")],
        "vars": {**FOUND, **variables},
        "tasks": tasks,
    }


def run_plays(folder, inventory, plays, *options, bin_folder=Path(sys.executable).parent):
    """Run plays and return all that Ansible printed."""
    path = folder / "play.yml"
    path.write_text(json.dumps(plays))
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(tree.link().parents[2]),
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_NOCOLOR": "1",
        "LC_ALL": "C.UTF-8",
    }
    command = [str(bin_folder / "ansible-playbook"), "-i", str(inventory), str(path), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def rendered(folder, trials, bin_folder=Path(sys.executable).parent):
    """{id: {"texts": by template, "findings": of preflight, "evaluated": variables}} of reports with an inventory."""
    hosts = {trial: TRIALS[trial]["inventory"] for trial in trials}
    # Evaluated once for a template, and not for each of its words.
    look = "'%s': lookup('ansible.builtin.template', '%s', template_vars={'__sglang_server': __sglang_server})"
    texts = "{%s}" % ", ".join(look % pair for pair in TEMPLATES.items())
    own = {name for variables in hosts.values() for name in variables if name.startswith("sglang_")}
    evaluated = "{%s}" % ", ".join("'%s': %s | default(none)" % (name, name) for name in sorted(own))
    whole = "{'texts': %s, 'settings': __sglang_server, 'findings': looked.findings, 'evaluated': %s}" % (
        texts,
        evaluated,
    )
    tasks = [
        {"gpufleet.sglang.preflight_variables": {}, "register": "looked"},
        {
            "ansible.builtin.debug": {
                "msg": "RESULT:{{ inventory_hostname }}:{{ %s | to_json | b64encode }}:END" % whole
            }
        },
    ]
    output = run_plays(folder, write_inventory(folder, hosts), [play_of("all", tasks)], bin_folder=bin_folder)
    found = re.findall(r"RESULT:(\w+):(\S+):END", output)
    return {trial: json.loads(base64.b64decode(data)) for trial, data in found}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return rendered(tmp_path_factory.mktemp("trials"), WITH_INVENTORY)


def unit_of(results, trial):
    return results[trial]["texts"]["sglang.service.j2"]


# ---------------------------------------------------------------------------
# What systemd makes of a text (systemd.syntax, systemd.service, systemd.exec)
# ---------------------------------------------------------------------------


def split_words(line):
    """Words of a line of a unit: quotes and backslashes are taken away."""
    words, word, quote, position = [], None, "", 0
    while position < len(line):
        sign = line[position]
        if sign == "\\":
            position += 1
            word = (word or "") + line[position]
        elif quote:
            if sign == quote:
                quote = ""
            else:
                word += sign
        elif sign in "\"'":
            quote, word = sign, word or ""
        elif sign in " \t":
            words += [] if word is None else [word]
            word = None
        else:
            word = (word or "") + sign
        position += 1
    assert not quote
    return words + ([] if word is None else [word])


def without_doubles(text, sign):
    """A doubled sign is one; a single one would be a specifier or an expansion."""
    assert sign not in text.replace(sign * 2, ""), text
    return text.replace(sign * 2, sign)


def argv_of(unit):
    """What the process gets by ExecStart=."""
    (line,) = re.findall(r"(?m)^ExecStart=((?:.*\\\n)*.*)$", unit)
    words = split_words(re.sub(r"\\\n", " ", line))
    return [without_doubles(without_doubles(word, "%"), "$") for word in words]


def own_words(argv):
    """Without interpreter, module, and the arguments that the role gives to every server."""
    assert argv[1:3] == ["-m", "sglang.launch_server"]
    words = argv[3:]
    for name in ("--model-path", "--host", "--port", "--config"):
        if name in words:
            place = words.index(name)
            del words[place : place + 2]
    return words


def environment_of(text):
    """What the process gets by an environment file with one quoted value a line."""
    values = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _sign, quoted = line.partition("=")
            assert quoted[0] == quoted[-1] == '"', line
            values[name] = re.sub(r"\\(.)", r"\1", quoted[1:-1])
    return values


# ---------------------------------------------------------------------------
# Every report is tried
# ---------------------------------------------------------------------------

THIS = Path(__file__).read_text()


def is_tried_here(trial, row):
    by_name = re.search(rf"(?m)^def test_{trial}_", THIS)
    by_content = {"inventory", "refused"} & set(row) and ("expected" in row or "refused" in row)
    return bool(by_name or by_content)


@pytest.mark.parametrize("trial", TRIALS)
def test_every_report_is_tried_or_left_out_with_a_reason(trial):
    row = TRIALS[trial]
    assert row["source"].startswith("https://github.com/")
    assert row["what"].endswith(".")
    assert ("left_out" in row) is not is_tried_here(trial, row)


@pytest.mark.parametrize("trial", TRIALS)
def test_what_tries_it_elsewhere_exists(trial):
    for place in TRIALS[trial].get("tried", []):
        path, _sign, function = place.partition("::")
        assert (ROOT / path).is_file(), place
        if function:
            nodes = ast.walk(ast.parse((ROOT / path).read_text()))
            assert function in {node.name for node in nodes if isinstance(node, ast.FunctionDef)}, place


def test_every_expectation_is_read_by_a_test():
    """A key that is misspelt would expect nothing."""
    keys = {key for row in TRIALS.values() for key in row.get("expected", {})}
    assert {key for key in keys if f'"{key}"' not in THIS} == set()


# ---------------------------------------------------------------------------
# By content
# ---------------------------------------------------------------------------


@pytest.mark.parametrize("trial", WITH_INVENTORY)
def test_preflight_finds_nothing_in_a_good_inventory(results, trial):
    assert results[trial]["findings"] == []


@pytest.mark.parametrize("trial", trials_with("argv", "argv_without"))
def test_the_process_gets_the_words(results, trial):
    argv, wanted = argv_of(unit_of(results, trial)), expected(trial)
    if "argv" in wanted:
        assert own_words(argv) == wanted["argv"]
    assert [word for word in argv if word in wanted.get("argv_without", [])] == []


@pytest.mark.parametrize("trial", trials_with("environment"))
def test_the_process_gets_the_environment(results, trial):
    assert environment_of(results[trial]["texts"]["environment.j2"]) == expected(trial)["environment"]


@pytest.mark.parametrize("trial", trials_with("unit", "unit_without", "unit_without_text"))
def test_the_unit_says_it_so(results, trial):
    unit, wanted = unit_of(results, trial), expected(trial)
    lines = unit.splitlines()
    assert [line for line in wanted.get("unit", []) if line not in lines] == []
    directives = set(re.findall(r"(?m)^(\w+)=", unit))
    assert directives & set(wanted.get("unit_without", [])) == set()
    assert [text for text in wanted.get("unit_without_text", []) if text in unit] == []


@pytest.mark.parametrize("trial", trials_with("evaluated"))
def test_a_variable_is_evaluated_to_its_type(results, trial):
    found = {name: results[trial]["evaluated"][name] for name in expected(trial)["evaluated"]}
    assert [(name, repr(value)) for name, value in found.items()] == [
        (name, repr(value)) for name, value in expected(trial)["evaluated"].items()
    ]


REFUSED = [(trial, one) for trial, row in TRIALS.items() for one in row.get("refused", [])]


@pytest.mark.parametrize(
    ("trial", "one"), REFUSED, ids=[f"{trial}-{next(iter(one['variables']))}" for trial, one in REFUSED]
)
def test_preflight_refuses_it_in_one_sentence(trial, one):
    found = [finding.sentence for finding in _preflight.findings({**GOOD, **one["variables"]}, SPECS)]
    assert len(found) == 1, found
    assert one["says"] in found[0]
    assert "sk-TRIAL" not in found[0]


# ---------------------------------------------------------------------------
# One by one
# ---------------------------------------------------------------------------


def test_e01_the_text_of_a_dictionary_is_json_again(results):
    argv = argv_of(unit_of(results, "e01"))
    words = dict(zip(argv, argv[1:]))
    declared = TRIALS["e01"]["inventory"]["sglang_server_arguments"]
    assert json.loads(words["--cuda-graph-config"]) == declared["cuda-graph-config"]
    assert json.loads(words["--json-model-override-args"]) == {"index_topk_freq": 4}


def test_e03_a_dollar_is_doubled_in_execstart_only(results):
    assert _words.systemd_assignment("PW", "p$ss%w") == expected("e03")["assignment"]
    assert yaml.safe_load(results["e03"]["texts"]["secret.yaml.j2"]) == expected("e03")["keys"]


def test_e04_a_whole_assignment_is_quoted():
    values = TRIALS["e04"]["inventory"]["sglang_server_environment"]
    found = [_words.systemd_assignment(name, value) for name, value in values.items()]
    assert found == expected("e04")["assignments"]


def file_tasks():
    """{file name of the template: task} of the role."""
    tasks = yaml.safe_load((ROLE / "tasks" / "files.yml").read_text())
    templates = [task for task in tasks if "ansible.builtin.template" in task]
    return {task["ansible.builtin.template"]["src"]: task for task in templates}


def test_e04_a_warning_of_systemd_stops_the_role(tmp_path):
    """By the very command of the role."""
    check = file_tasks()["sglang.service.j2"]["ansible.builtin.template"]["validate"]
    good, bad = "[Service]\nExecStart=/bin/true\n", expected("e04")["bad_directive"]

    def verified(text):
        (tmp_path / "temporary").write_text(text)
        command = check.replace("%s", str(tmp_path / "temporary")).replace("{{ __sglang_server_unit }}", "x.service")
        assert "{{" not in command
        return subprocess.run(command.split(), capture_output=True, text=True, check=False)

    if not shutil.which("systemd-analyze") or verified(good).returncode != 0:
        pytest.skip("systemd-analyze does not work here; the scenario `unit` tries it on hosts")
    done = verified(good + "%s=%s\n" % (bad["name"], bad["value"]))
    assert done.returncode != 0
    assert bad["warning"] in done.stderr


def test_e06_an_engine_that_is_known_refuses_a_text_for_a_flag():
    wanted = expected("e06")["with_engine"]
    arguments = dict(TRIALS["e06"]["inventory"]["sglang_server_arguments"])
    with pytest.raises(ValueError, match=wanted["says"]):
        _words.server_arguments(arguments, wanted["engine"])
    del arguments["enable-metrics"]
    assert _words.server_arguments(arguments, wanted["engine"]) == ["--trust-remote-code"]


def planned(**changes):
    given = {
        "arguments": {"tp_size": 8},
        "cell_bytes": 32768,
        "geometry": {},
        "engine_version": "0.5.23",
        "free_before_load_gib": 94.97,
        "weights_gib": 60.0,
        "target_tokens": 200000,
        "server": {},
    }
    return memory_plan.plan_of({**given, **changes})


def test_e09_a_plan_takes_texts_for_numbers(results):
    """As the inventory gives them: the texts are still texts, the plan has numbers."""
    found, wanted = results["e09"]["evaluated"], expected("e09")["plan"]
    assert (found["sglang_server_target_tokens"], found["sglang_server_mem_fraction_static"]) == ("131072", "0.85")
    plan = planned(
        target_tokens=found["sglang_server_target_tokens"],
        mem_fraction_static=found["sglang_server_mem_fraction_static"],
    )
    assert plan["step"]["action"] == "try", plan["explanation"]
    assert (plan["cap_tokens"], plan["fraction"]) == (wanted["target_tokens"], wanted["fraction"])
    assert plan["step"]["values"]["arguments"]["mem-fraction-static"] == wanted["fraction"]


def test_e10_a_computed_fraction_has_three_digits_and_is_the_same_again():
    words = [_words.server_arguments(planned()["step"]["values"]["arguments"]) for _turn in range(2)]
    assert words[0] == words[1]
    assert re.fullmatch(r"0\.[0-9]{1,3}", words[0][words[0].index("--mem-fraction-static") + 1])


def test_e10_a_stated_fraction_has_no_sixteenth_digit():
    wanted = expected("e10")["fraction"]
    words = _words.server_arguments(planned(mem_fraction_static=wanted["stated"])["step"]["values"]["arguments"])
    assert words[words.index("--mem-fraction-static") + 1] == wanted["written"]


WRITTEN = {"environment.j2": "main.env", "secret.yaml.j2": "main.secret.yaml", "sglang.service.j2": "main.service"}


def local(task, folder):
    """A task of the role that needs neither root nor the user of the service, and writes below *folder* only."""
    options = dict(task["ansible.builtin.template"])
    options.update(dest=str(folder / WRITTEN[options["src"]]), src=TEMPLATES[options["src"]])
    for name in ("owner", "group", "validate"):
        options.pop(name, None)
    kept = {name: value for name, value in task.items() if name not in ("become", "ansible.builtin.template")}
    return {**kept, "ansible.builtin.template": options}


@pytest.fixture(scope="module")
def shown(results, tmp_path_factory):
    """(folder of the files, output of two runs with -vvv and --diff, the second with another key)."""
    folder = tmp_path_factory.mktemp("shown")
    folder.joinpath("files").mkdir()
    host = TRIALS["e12"]["inventory"]
    tasks = {name: local(task, folder / "files") for name, task in file_tasks().items()}
    # The token goes to one module only; the hub is not there.
    hub = {
        "repo": "org/model",
        "revision": "main",
        "endpoint": "http://127.0.0.1:1",
        "token": "{{ sglang_model_token }}",
        "timeout_seconds": 1,
    }
    asks = {"gpufleet.sglang.model_info": hub, "failed_when": False}
    settings = results["e12"]["settings"]
    rotated = {**settings, "api_key": settings["api_key"].replace("0000", "0001")}
    plays = [
        play_of("e12", [*tasks.values(), asks], __sglang_server=settings),
        play_of("e12", [tasks["secret.yaml.j2"]], __sglang_server=rotated),
    ]
    inventory = write_inventory(folder, {"e12": host})
    return folder / "files", run_plays(folder, inventory, plays, "-vvv", "--diff")


def test_e12_nothing_that_ansible_shows_tells_a_secret(shown):
    folder, output = shown
    # Or there was nothing to tell.
    assert yaml.safe_load((folder / "main.secret.yaml").read_text()) == {"api-key": "sk-TRIAL-0001"}
    assert [secret for secret in expected("e12")["output_without"] if secret in output] == []
    assert "http://127.0.0.1:1" in output
    assert [text for text in expected("e12")["output"] if text not in output] == []


def test_e13_files_with_a_key_are_the_servers_own(shown):
    folder, _output = shown
    wanted = expected("e13")["modes"]
    assert {name: "%04o" % ((folder / name).stat().st_mode & 0o7777) for name in wanted} == wanted
    owners = {name: task["ansible.builtin.template"]["owner"] for name, task in file_tasks().items()}
    assert owners["environment.j2"] == "root"
    assert owners["secret.yaml.j2"] == "{{ sglang_server_user }}"


def test_e13_what_cannot_be_kept_secret_is_said():
    text = " ".join((ROOT / "docs" / "unit.md").read_text().split())
    assert expected("e13")["documented"] in text


def test_e15_the_systems_python_is_left_alone():
    wanted = expected("e15")
    files = [path for name in ("roles", "playbooks", "plugins") for path in (ROOT / name).rglob("*") if path.is_file()]
    texts = {path: path.read_text() for path in files if path.suffix in (".yml", ".py", ".j2")}
    assert len(texts) > 100
    assert [path for path, text in texts.items() if any(one in text for one in wanted["texts_without"])] == []
    packages = yaml.safe_load((ROOT / "roles/sglang_engine/vars/main.yml").read_text())
    assert "name: %s\n" % wanted["package"] in yaml.safe_dump(packages)


def test_e15_a_python_without_ensurepip_is_said_with_its_package():
    bare = _venv.Python("/usr/bin/python3", (3, 12), can_make_venv=False)
    choice = _venv.choose_python("0.5.23", [bare])
    assert choice.python is None
    assert expected("e15")["says"] in choice.problem
    assert "install python3.12-venv" in choice.problem


def entries(node):
    """(key, value) of all dictionaries in a document, however deep."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield key, value
            yield from entries(value)
    elif isinstance(node, list):
        for one in node:
            yield from entries(one)


def documents():
    return {path: yaml.safe_load(path.read_text()) for path in YAML_FILES}


def test_e16_no_task_becomes_an_unprivileged_user():
    keys = set(expected("e16")["keys_without"])
    found = {path.name: keys & {key for key, _value in entries(node)} for path, node in documents().items()}
    assert len(found) > 30
    assert {path: names for path, names in found.items() if names} == {}
    assert "allow_world_readable_tmpfiles" not in (ROOT / "ansible.cfg").read_text()


CONDITIONS = ("when", "that", "until", "failed_when", "changed_when")


def conditions(path_node):
    for key, value in entries(path_node):
        if key in CONDITIONS:
            yield from (str(one) for one in (value if isinstance(value, list) else [value]))


def test_e19_a_switch_is_cast_where_a_condition_reads_it():
    """Preflight refuses texts, and who runs a role alone has this."""
    options = {
        name: option for content in SPECS.values() for name, option in _preflight.options_of({"x": content}).items()
    }
    switches = [name for name, option in options.items() if option["type"] == "bool"]
    short = [
        name.replace("sglang_server_", "__sglang_server.") for name in switches if name.startswith("sglang_server_")
    ]
    read = re.compile(r"(?<![\w.])(%s)\b(?!\s*\|\s*bool\b)" % "|".join(map(re.escape, switches + short)))
    every = [one for node in documents().values() for one in conditions(node)]
    assert any("sglang_server_defer_failure | bool" in one for one in every)
    assert [one for one in every if read.search(one)] == []


def test_e22_no_template_has_a_header_that_a_core_refuses():
    assert sorted(TEMPLATES) == expected("e22")["texts"]
    for path in TEMPLATES.values():
        for value in re.findall(r"(?m)^#jinja2:.*?:\s*(\w+)", Path(path).read_text()):
            assert value in ("True", "False"), path


def test_e22_conditions_compare():
    every = [one for node in documents().values() for one in conditions(node)]
    assert len(every) > 50
    assert [
        one
        for one in every
        if re.match(r"\s*(not\s+)?(lookup|query|q)\(", one) and not re.search(r"==|!=|\bis\b|[<>]", one)
    ] == []


# Reports whose values have most ways to differ.
COMPARED = ("e01", "e03", "e07", "e10", "e22")


def test_e22_every_core_renders_the_same_bytes(results, tmp_path):
    """Equal bytes are also what makes a second run change nothing."""
    here = Path(sys.executable).parent
    others = [path.parent for path in sorted(ROOT.glob(".venv*/bin/ansible-playbook")) if path.parent != here]
    if here != ROOT / ".venv" / "bin" or not others:
        pytest.skip("compared by the environment .venv, where there is another one with another ansible-core")
    for bin_folder in others:
        found = rendered(tmp_path, COMPARED, bin_folder)
        assert sorted(found) == sorted(COMPARED)
        for trial, one in found.items():
            assert one["texts"] == results[trial]["texts"], (trial, bin_folder)


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers everything alike and counts."""

    def _answer(self):
        self.server.asked.append(self.path)
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    do_GET = do_POST = do_CONNECT = _answer

    def log_message(self, *arguments):
        pass


@pytest.fixture
def serve():
    servers = []

    def start(status, body):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        server.daemon_threads, server.asked, server.status, server.body = True, [], status, body
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


PROXY_NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.mark.parametrize("environment", expected("e24")["environments"], ids="-".join)
def test_e24_no_question_to_the_server_goes_by_a_proxy(serve, monkeypatch, environment):
    portal = expected("e24")["proxy_answers"]
    proxy, server = serve(portal["status"], portal["body"].encode()), serve(200, b'{"text": " Paris."}')
    for name in PROXY_NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        url = f"http://127.0.0.1:{proxy.server_address[1]}" if value == "proxy" else value
        monkeypatch.setenv(name, url)
    address = _http.Address("127.0.0.1", server.server_address[1])
    assert _http.completion(address, "The capital of France is")[1] == " Paris."
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        answer, text = _http.completion(_http.Address("127.0.0.1", free.getsockname()[1]), "x")
    assert (answer.good, text) == (False, None)
    assert proxy.asked == []
    # The load is put by another library.
    requests = pytest.importorskip("requests")
    session = requests.Session()
    _soak_client.Client(session, requests.RequestException, address, 1)
    assert session.post(address.base_url + "/generate", json={}).json() == {"text": " Paris."}
    assert proxy.asked == []


def test_e24_a_portal_that_answers_200_is_no_completion(serve):
    portal = expected("e24")["proxy_answers"]
    address = _http.Address("127.0.0.1", serve(portal["status"], portal["body"].encode()).server_address[1])
    assert _http.completion(address, "x")[1] is None


def test_e25_what_runs_on_hosts_is_written_for_the_oldest_python():
    """Its grammar; that only its library is used is a rule of the house, and sanity tests compile."""
    oldest = tuple(expected("e25")["oldest_python"])
    folders = ("plugins/module_utils", "plugins/modules", "roles/sglang_server/files")
    files = [path for folder in folders for path in (ROOT / folder).glob("*.py")]
    assert len(files) > 80
    for path in files:
        ast.parse(path.read_text(), str(path), feature_version=oldest)
    assert expected("e25")["documented"] in (ROOT / "README.md").read_text()


def test_e25_the_engines_python_runs_only_what_needs_it():
    """Of the host's own Python Ansible knows best; bindings of its package manager are there alone."""
    found = []
    for path, node in documents().items():
        for task in [node] if isinstance(node, dict) else node or []:
            for key, value in entries(task):
                if key == "ansible_python_interpreter":
                    found += [name for name in task if "." in name] or [f"{path}: {value}"]
    assert found == expected("e25")["interpreter_of_the_engine"]


def test_c13_cuda_counts_boards_as_nvidia_smi_does(results):
    unit, environment = (results["c13"]["texts"][name] for name in ("sglang.service.j2", "environment.j2"))
    assert expected("c13")["order"] in unit + environment.replace('"', "")


def test_d12_the_journal_is_kept_on_disk(results):
    text = results["d12"]["texts"]["journald.conf.j2"]
    lines = [line for line in text.splitlines() if not line.startswith("#") and line]
    assert "\n".join(lines) == expected("d12")["journald"]
