# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What this machine's package sources, certificates and package index look like, as files for a test host.

Use: python machine.py SEED RELEASE        python machine.py --mirror RELEASE   prints the Debian mirror in use, if any
Writes files below the directory SEED, as they shall lie in the host, and prints the directories of this machine
that these files name, one a line: they are to be mounted read-only at the same place.
Nothing is assumed about the machine: what it does not have is left out.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
LOCAL_CAS = Path("/usr/local/share/ca-certificates")

# Environment names whose values a host needs in order to reach what this machine reaches.
CERTIFICATE_NAME = re.compile(r"^(\w*_CA_BUNDLE|\w*CAINFO|\w*_CA_CERTS|SSL_CERT_FILE|SSL_CERT_DIR|PIP_CERT)$")
PROXY_NAME = re.compile(r"^(https?|ftp|all|no)_proxy$", re.IGNORECASE)

# What apt has built in, or what is of no use in a host: every other setting for fetching is handed over.
APT_OWN = re.compile(r'IndexTargets|CompressionTypes|Changelogs|cdrom| "";$')

# pip options that say where packages come from; the others (user, target, python, ...) are this machine's own business.
PIP_OPTIONS = {
    "index-url",
    "extra-index-url",
    "find-links",
    "no-index",
    "trusted-host",
    "constraint",
    "cert",
    "client-cert",
    "proxy",
    "timeout",
    "default-timeout",
    "retries",
    "prefer-binary",
    "disable-pip-version-check",
}


def output(*command: str) -> str:
    """Standard output of a command; nothing when it is missing or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


class Seed:
    """The files for a host, and the directories to mount."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.mounts: set[str] = set()

    def write(self, path: str, text: str) -> None:
        """Put a text file into the seed."""
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def take(self, path: Path) -> None:
        """Copy a file of this machine; mount a directory. The host's own system directories stay its own."""
        if path.is_file():
            target = self.root / str(path).lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        elif path.is_dir() and path != Path("/") and not str(path).startswith("/etc/ssl"):
            self.mounts.add(str(path))

    def take_named(self, value: str, parents: bool = False) -> None:
        """Take every local path in a setting's value. parents: an index's pages may point beside its directory."""
        for word in value.replace(",", " ").split():
            path = Path(re.sub(r"^file:(//localhost)?(//)?", "", word))
            if path.is_absolute() and path.exists():
                use_parent = parents and path.is_dir() and path.parent != Path("/")
                self.take(path.parent if use_parent else path)


def read_pip_config(text: str) -> dict[str, dict[str, str]]:
    """Sections of `pip config list`; what the environment says stands above the files."""
    sections: dict[str, dict[str, str]] = {}
    from_environment: dict[str, str] = {}
    for line in text.splitlines():
        name, _equals, value = line.partition("=")
        section, _dot, option = name.rpartition(".")
        if option not in PIP_OPTIONS:
            continue
        target = from_environment if section == ":env:" else sections.setdefault(section, {})
        target[option] = str(ast.literal_eval(value))
    sections.setdefault("global", {}).update(from_environment)
    for options in sections.values():  # in the environment it has another name
        if "default-timeout" in options:
            options["timeout"] = options.pop("default-timeout")
    return sections


def pip(seed: Seed) -> None:
    """Write /etc/pip.conf, and take the certificate files, constraint files and wheel directories that it names."""
    text = output(sys.executable, "-m", "pip", "config", "list") or output("pip", "config", "list")
    lines = []
    for section, options in sorted(read_pip_config(text).items()):
        lines.append(f"[{section}]")
        for option, value in sorted(options.items()):
            seed.take_named(value, parents=option.endswith("index-url"))
            lines.append(f"{option} = " + "\n    ".join(value.split("\n")))
    seed.write("/etc/pip.conf", "\n".join(lines) + "\n")


def certificates_and_environment(seed: Seed) -> None:
    """Write /etc/environment (proxies, certificate files) and take the certificates that this machine trusts."""
    kept = {name: value for name, value in os.environ.items() if CERTIFICATE_NAME.match(name) or PROXY_NAME.match(name)}
    for name, value in kept.items():
        if CERTIFICATE_NAME.match(name):
            seed.take_named(value)
    seed.take(CA_BUNDLE)
    if LOCAL_CAS.is_dir():
        for path in LOCAL_CAS.rglob("*.crt"):
            seed.take(path)
    seed.write("/etc/environment", "".join(f"{name}={value}\n" for name, value in sorted(kept.items())))


def codename() -> str:
    """This machine's Debian release; nothing on another distribution."""
    text = Path("/etc/os-release").read_text(encoding="utf-8") if Path("/etc/os-release").exists() else ""
    fields = dict(re.findall(r"^(\w+)=\"?([^\"\n]*)\"?$", text, re.MULTILINE))
    return fields.get("VERSION_CODENAME", "") if fields.get("ID") == "debian" else ""


def apt_sources(release: str) -> list[str]:
    """Debian's lines of this machine's apt sources, for a release: "deb URI SUITE COMPONENTS"."""
    own = codename()
    lines: dict[tuple[str, str], set[str]] = {}
    listed = output(
        "apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages"
    )
    for line in listed.splitlines():
        uri, suite, component = [*line.split(), "", ""][:3]
        if own and component and (suite == own or suite.startswith(own + "-")):
            lines.setdefault((uri, release + suite[len(own) :]), set()).add(component)
    return [f"deb {uri} {suite} {' '.join(sorted(components))}" for (uri, suite), components in lines.items()]


def apt(seed: Seed, release: str) -> None:
    """Write apt's sources and its settings for fetching, when this machine is a Debian; else the image's own stay."""
    sources = apt_sources(release)
    if not sources:
        return
    seed.write("/etc/apt/sources.list", "\n".join(sources) + "\n")
    for line in sources:
        seed.take_named(line)
    settings = [line for line in output("apt-config", "dump", "Acquire").splitlines() if not APT_OWN.search(line)]
    for line in settings:
        seed.take_named(" ".join(re.findall(r'"([^"]*)"', line)))
    seed.write("/etc/apt/apt.conf.d/90machine", "\n".join(settings) + "\n")


def main() -> None:
    """Fill the seed, print the mounts."""
    if len(sys.argv) == 3 and sys.argv[1] == "--mirror":
        suites = [line.split() for line in apt_sources(sys.argv[2])]
        print(next((fields[1] for fields in suites if fields[2] == sys.argv[2]), ""))
        return
    seed, release = Seed(Path(sys.argv[1])), sys.argv[2]
    pip(seed)
    certificates_and_environment(seed)
    apt(seed, release)
    print("\n".join(sorted(seed.mounts)))


if __name__ == "__main__":
    main()
